"""Configuration: keys, types, layers, and what the keys act on. One test for each sentence of the contract."""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import monarch
import pytest
from monarch._config.duration import format_duration, parse_duration
from monarch._config.keys import KEYS
from monarch._config.layers import Layers
from monarch._config.transport import BindSpec
from monarch.actor import Actor, ChannelTransport, FailureEvent, SpawnError, SupervisionError, endpoint
from monarch.config import (
    Encoding,
    clear_runtime_config,
    configure,
    configured,
    get_global_config,
    get_runtime_config,
    parametrize_config,
    parametrize_config_pointwise,
)

SpawnProcs = Callable[..., Any]

pytestmark = pytest.mark.filterwarnings("ignore:configuration key")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = get_runtime_config()
    yield
    clear_runtime_config()
    configure(**before)


# --- functions ---


def test_configure_sets_keys_in_the_runtime_layer() -> None:
    configure(tail_log_lines=7)
    assert get_runtime_config()["tail_log_lines"] == 7
    assert get_global_config()["tail_log_lines"] == 7


def test_configured_yields_all_values_and_restores_the_runtime_layer() -> None:
    configure(tail_log_lines=7)
    with pytest.raises(KeyError), configured(tail_log_lines=8, prefix_with_rank=False) as config:
        assert (config["tail_log_lines"], config["prefix_with_rank"]) == (8, False)
        assert set(config) == set(KEYS)
        raise KeyError
    assert get_runtime_config() == {"tail_log_lines": 7}


def test_get_global_config_has_every_key() -> None:
    assert set(get_global_config()) == set(KEYS)


def test_get_runtime_config_has_only_what_configure_set() -> None:
    assert get_runtime_config() == {}
    configure(cleanup_timeout="5s")
    assert get_runtime_config() == {"cleanup_timeout": "5s"}


def test_clear_runtime_config_empties_the_runtime_layer() -> None:
    configure(cleanup_timeout="5s")
    clear_runtime_config()
    assert get_runtime_config() == {}
    assert get_global_config()["cleanup_timeout"] == "3s"


def test_what_is_read_back_can_be_set() -> None:
    configure(**get_global_config())
    assert get_runtime_config() == get_global_config()


def test_the_root_has_the_same_functions() -> None:
    for function in (configure, configured, get_global_config, get_runtime_config, clear_runtime_config):
        assert getattr(monarch, function.__name__) is function


# --- parametrize ---


def points_of(decorate: Any) -> list[dict[str, Any]]:
    def test() -> None:
        pass

    (mark,) = decorate(test).pytestmark
    return list(mark.args[1])


def test_parametrize_config_is_the_cross_product() -> None:
    decorate = parametrize_config(tail_log_lines={1, 2}, prefix_with_rank={True, False})
    points = points_of(decorate)
    assert len(points) == 4
    assert {(p["tail_log_lines"], p["prefix_with_rank"]) for p in points} == {
        (1, True),
        (1, False),
        (2, True),
        (2, False),
    }


def test_parametrize_config_without_keys_is_a_value_error() -> None:
    for function in (parametrize_config, parametrize_config_pointwise):
        with pytest.raises(ValueError, match="at least one"):
            function()


def test_parametrize_config_pointwise_is_zipped() -> None:
    decorate = parametrize_config_pointwise(tail_log_lines=[1, 2], cleanup_timeout=["1s", "2s"])
    points = points_of(decorate)
    assert [(p["tail_log_lines"], p["cleanup_timeout"]) for p in points] == [(1, "1s"), (2, "2s")]


def test_parametrize_config_pointwise_with_unequal_lengths_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="same number"):
        parametrize_config_pointwise(tail_log_lines=[1, 2], cleanup_timeout=["1s"])


@parametrize_config(tail_log_lines={3, 4})
def test_parametrize_config_applies_to_a_test_with_fixtures(tmp_path: Path) -> None:
    assert tmp_path.exists()
    assert get_runtime_config()["tail_log_lines"] in (3, 4)


# --- errors ---


def test_an_unknown_key_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="invalid configuration key 'nothing'"):
        configure(nothing=1)


WRONG = [
    ("tail_log_lines", "1"),
    ("tail_log_lines", True),
    ("tail_log_lines", 1.5),
    ("prefix_with_rank", 1),
    ("prefix_with_rank", "true"),
    ("message_latency_sampling_rate", "0.5"),
    ("channel_tcp_congestion", b"bbr"),
    ("cleanup_timeout", 3),
    ("cleanup_timeout", 3.5),
    ("default_encoding", "bincode"),
    ("default_encoding", 1),
    ("default_transport", 42),
    ("default_transport", {}),
]


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_a_value_of_the_wrong_type_is_a_type_error(key: str, value: Any) -> None:
    with pytest.raises(TypeError, match=key):
        configure(**{key: value})


@pytest.mark.parametrize("text", ["", "3", "s", "3 parsecs", "-3s", "3s and", "1.s"])
def test_a_bad_duration_text_is_a_type_error(text: str) -> None:
    with pytest.raises(TypeError, match="Invalid duration format"):
        configure(cleanup_timeout=text)


@pytest.mark.parametrize("text", ["carrier pigeon", "gopher://x", "tcp://", ""])
def test_a_bad_transport_string_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="no transport"):
        configure(default_transport=text)


def test_a_negative_number_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="at least 0"):
        configure(tail_log_lines=-1)


def test_of_several_keys_all_are_set_or_none() -> None:
    with pytest.raises(TypeError):
        configure(tail_log_lines=5, cleanup_timeout=5)
    assert get_runtime_config() == {}


# --- values ---

DURATIONS = [
    ("300s", "5m"),
    ("90s", "1m 30s"),
    ("1h30m", "1h 30m"),
    ("1h 30m", "1h 30m"),
    ("1 hour 30 minutes", "1h 30m"),
    ("500ms", "500ms"),
    ("1500 msec", "1s 500ms"),
    ("12us", "12us"),
    ("1001nsec", "1us 1ns"),
    ("0s", "0s"),
    ("0", "0s"),
    ("36h", "1day 12h"),
    ("2weeks", "14days"),
    ("3days 2min", "3days 2m"),
    ("31557600s", "1year"),
    ("2years 1M", "2years 1month"),
]


@pytest.mark.parametrize(("given", "shown"), DURATIONS)
def test_durations_are_read_back_normalised(given: str, shown: str) -> None:
    with configured(cleanup_timeout=given) as config:
        assert config["cleanup_timeout"] == shown
    assert parse_duration(shown) == parse_duration(given)
    assert format_duration(parse_duration(shown)) == shown


def test_bools_ints_and_floats_are_native() -> None:
    with configured(force_file_log=True, tail_log_lines=3, message_latency_sampling_rate=1) as config:
        values = [config[k] for k in ("force_file_log", "tail_log_lines", "message_latency_sampling_rate")]
    assert values == [True, 3, 1.0]
    assert [type(value) for value in values] == [bool, int, float]


TRANSPORTS = [
    (ChannelTransport.TcpWithLocalhost, ChannelTransport.TcpWithLocalhost),
    ("tcp", ChannelTransport.TcpWithHostname),
    ("ipc", ChannelTransport.Unix),
    ("tls", ChannelTransport.Tls),
    ("metatls", ChannelTransport.MetaTlsWithIpV6),
    ("metatls-hostname", ChannelTransport.MetaTlsWithHostname),
    ("tcp://127.0.0.1:8080", "tcp://127.0.0.1:8080"),
]


@pytest.mark.parametrize(("given", "spec"), TRANSPORTS)
def test_the_default_transport_is_read_back_as_a_bind_spec(given: Any, spec: Any) -> None:
    with configured(default_transport=given) as config:
        assert config["default_transport"] == BindSpec(spec)
        assert config["default_transport"] != BindSpec(ChannelTransport.Quic)


def test_transports_and_bind_specs_can_be_pickled() -> None:
    for transport in ChannelTransport:
        assert pickle.loads(pickle.dumps(transport)) is transport
        assert pickle.loads(pickle.dumps(BindSpec(transport))) == BindSpec(transport)
    assert pickle.loads(pickle.dumps(BindSpec("tcp://h:1"))) == BindSpec("tcp://h:1")


@pytest.mark.parametrize("encoding", list(Encoding))
def test_the_default_encoding_takes_the_enum(encoding: Encoding) -> None:
    with configured(default_encoding=encoding) as config:
        assert config["default_encoding"] is encoding


def test_an_optional_duration_may_be_unset() -> None:
    with configured(mesh_orphan_timeout=None) as config:
        assert config["mesh_orphan_timeout"] is None
    assert get_global_config()["mesh_orphan_timeout"] == "1m"


# --- layers ---


def test_layers_from_the_environment_down_to_the_default(tmp_path: Path) -> None:
    file = tmp_path / "monarch.conf"
    file.write_text("# ours\n\ntail_log_lines = 3\ncleanup_timeout=4s\n")
    variable = KEYS["tail_log_lines"].env
    with_all = Layers({"MONARCH_CONFIG": str(file), variable: "1"})
    with_file = Layers({"MONARCH_CONFIG": str(file)})
    alone = Layers({})
    seen = []
    for layers in (alone, with_file, with_all):
        seen.append(layers.effective["tail_log_lines"])
        layers.inherit({"tail_log_lines": "4"})
        seen.append(layers.effective["tail_log_lines"])
        layers.configure({"tail_log_lines": 2}, 1)
        seen.append(layers.effective["tail_log_lines"])
    assert seen == [0, 4, 2, 3, 3, 2, 1, 1, 1]
    assert with_file.seconds("cleanup_timeout") == 4.0


BAD_FILES = [
    ("nothing = 1", "line 1 of .* invalid configuration key 'nothing'"),
    ("\ntail_log_lines = few", "line 2 of .* takes an int"),
    ("tail_log_lines", "line 1 of .* ignored"),
    ("cleanup_timeout = 3", "Invalid duration format"),
]


@pytest.mark.parametrize(("text", "message"), BAD_FILES)
def test_a_bad_line_of_the_file_is_ignored_with_a_warning(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "monarch.conf"
    file.write_text(text)
    with pytest.warns(UserWarning, match=message):
        layers = Layers({"MONARCH_CONFIG": str(file)})
    assert layers.effective == Layers({}).effective


def test_a_file_that_is_missing_is_told() -> None:
    with pytest.warns(UserWarning, match="cannot be read"):
        Layers({"MONARCH_CONFIG": "/nowhere/monarch.conf"})


def test_a_bad_variable_is_ignored_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="HYPERACTOR_MESH_TAIL_LOG_LINES is ignored: .*takes an int"):
        layers = Layers({"HYPERACTOR_MESH_TAIL_LOG_LINES": "few"})
    assert layers.effective["tail_log_lines"] == 0


@pytest.mark.parametrize("key", KEYS.values(), ids=lambda key: key.name)
def test_every_key_is_taken_from_its_variable(key: Any) -> None:
    value = key.default_value()
    layers = Layers({key.env: key.kind.text(value)})
    assert layers.effective[key.name] == value
    configure(**{key.name: key.kind.show(value)})


class Config(Actor):
    @endpoint
    def effective(self) -> dict[str, Any]:
        return get_global_config()

    @endpoint
    def runtime(self) -> dict[str, Any]:
        return get_runtime_config()

    @endpoint
    def configure(self, values: dict[str, Any]) -> dict[str, Any]:
        configure(**values)
        return get_global_config()


def test_effective_values_travel_to_spawned_procs_into_a_low_layer(spawn_procs: SpawnProcs) -> None:
    with configured(
        rdma_ibverbs_target="nic:one", cleanup_timeout="90s", default_transport="tcp", hyperactor_tls_key="/k"
    ):
        config = spawn_procs().spawn("config", Config)
    there = config.effective.call_one().get()
    assert there["rdma_ibverbs_target"] == "nic:one"
    assert there["cleanup_timeout"] == "1m 30s"
    assert there["default_transport"] == BindSpec(ChannelTransport.TcpWithHostname)
    # Paths of one process are not passed on.
    assert there["hyperactor_tls_key"] == get_global_config()["hyperactor_tls_key"]
    assert config.runtime.call_one().get() == {}
    assert config.configure.call_one({"cleanup_timeout": "2s"}).get()["cleanup_timeout"] == "2s"


def test_the_environment_beats_configure(run_python: Any) -> None:
    program = (
        "from monarch.config import *\nwith configured(tail_log_lines=5) as c: print(c['tail_log_lines'])\n"
        "print(get_runtime_config(), get_global_config()['tail_log_lines'])"
    )
    done = run_python("-c", program, env={**os.environ, "HYPERACTOR_MESH_TAIL_LOG_LINES": "9"})
    assert (done.status, done.out.split("\n")[:2]) == (0, ["9", "{} 9"]), done.err


# --- keys that change nothing ---


def test_a_key_that_changes_nothing_warns_once_and_at_its_caller() -> None:
    layers = Layers({})
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        layers.configure({"message_ttl_default": 3}, 0)
        layers.configure({"message_ttl_default": 4, "cleanup_timeout": "1s"}, 0)
    (warning,) = seen
    assert "'message_ttl_default' is accepted but changes nothing" in str(warning.message)
    assert warning.filename == __file__


def test_a_key_that_changes_nothing_warns_from_the_environment_when_the_client_starts(
    run_python: Any,
) -> None:
    program = "from monarch.actor import *\nthis_host().spawn_procs().initialized.get()"
    done = run_python("-c", program, env={**os.environ, "HYPERACTOR_MESSAGE_TTL_DEFAULT": "9"})
    assert done.status == 0
    assert done.err.count("'message_ttl_default' is accepted but changes nothing") == 1


def test_the_documentation_lists_the_keys() -> None:
    text = (Path(__file__).parents[2] / "docs/configuration.md").read_text()
    wanted = {True: [], False: []}
    for key in KEYS.values():
        default = "unset" if key.default is None else f"`{key.default}`" if key.default else "empty"
        wanted[key.acts].append(f"| `{key.name}` | `{key.env}` | {default} | {key.what} |")
    found = [line for line in text.splitlines() if line.startswith("| `")]
    assert found == wanted[True] + wanted[False], "\n".join(wanted[True] + wanted[False])


# --- what the keys act on ---


class Sink(Actor):
    @endpoint
    def total(self, data: Any) -> int:
        return sum(len(part) for part in data)

    @endpoint
    def make(self, size: int) -> bytes:
        return bytes(size)


def test_an_oversized_argument_is_rejected(spawn_procs: SpawnProcs) -> None:
    sink = spawn_procs().spawn("sink", Sink)
    chunks = [bytes(1 << 18) for _ in range(4)]
    text = r"rejecting oversize frame: len=\d+ > max=1048576.* CODEC_MAX_FRAME_LENGTH"
    with configured(codec_max_frame_length=1 << 20):
        for arguments in ([chunks + [b"1"]], [bytes(1 << 20)], [bytearray(1 << 20)]):
            with pytest.raises(SupervisionError, match=text):
                sink.total.call_one(arguments).get()
            with pytest.raises(SupervisionError, match=text):
                sink.total.broadcast(arguments)
    assert sink.total.call_one(chunks).get() == 1 << 20


def test_an_oversized_answer_is_rejected(spawn_procs: SpawnProcs) -> None:
    with configured(codec_max_frame_length=1 << 20):
        sink = spawn_procs().spawn("sink", Sink)
    assert len(sink.make.call_one(1 << 19).get()) == 1 << 19
    with pytest.raises(Exception, match="rejecting oversize frame"):
        sink.make.call_one(1 << 20).get()


@pytest.mark.parametrize("key", ["host_spawn_ready_timeout", "mesh_proc_spawn_max_idle"])
def test_a_phase_of_a_start_has_a_limit(spawn_procs: SpawnProcs, key: str) -> None:
    from monarch.actor import BootstrapCommand

    never = BootstrapCommand("sleep", None, ["1000"], {})
    with configured(**{key: "300ms"}):
        procs = spawn_procs(bootstrap_command=never)
    with pytest.raises(SpawnError, match="within 300 ms"):
        procs.initialized.get()


@pytest.mark.parametrize(("lines", "shown"), [(0, range(10)), (2, range(8, 10)), (30, range(10))])
def test_tail_log_lines_is_what_a_report_of_a_death_shows(lines: int, shown: range) -> None:
    tail = "\n".join(f"line {number}" for number in range(10))
    event = FailureEvent({"kind": "exited", "code": 3, "stderr_tail": tail})
    with configured(tail_log_lines=lines):
        assert event.stderr_tail.splitlines() == [f"line {number}" for number in shown]

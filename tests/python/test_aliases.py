"""The module paths that existing programs import beside the public ones."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pathlib
import warnings
from collections.abc import Iterator
from typing import Any

import monarch
import monarch.actor
import pytest
from conftest import EVENT_S

PACKAGE = pathlib.Path(monarch.__file__).parent
ALIASES = ("_src", "_rust_bindings")


def module_name(path: pathlib.Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def alias_modules() -> list[pathlib.Path]:
    return sorted(path for part in ALIASES for path in (PACKAGE / part).rglob("*.py"))


def declared(path: pathlib.Path) -> Iterator[tuple[str, str]]:
    """(home, name) of each alias in a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "alias":
            for home, names in (ast.literal_eval(pair) for pair in node.args[1:]):
                yield from ((home, name) for name in names.split())


def has_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("path", alias_modules(), ids=module_name)
def test_each_alias_is_the_object_of_its_home(path: pathlib.Path) -> None:
    alias = importlib.import_module(module_name(path))
    for home, name in declared(path):
        value = getattr(alias, name)
        if has_module(home) and hasattr(importlib.import_module(home), name):
            assert value is getattr(importlib.import_module(home), name)
        else:
            assert home == "monarch._compat.absent", f"{home} has no {name}"


def test_alias_modules_hold_no_logic() -> None:
    allowed = (ast.Expr, ast.Import, ast.ImportFrom, ast.Assign, ast.If)
    for path in alias_modules():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            assert isinstance(node, allowed), f"{path}:{node.lineno}"


def test_nothing_of_ours_imports_an_alias() -> None:
    old = {"actor_mesh.py", "proc_mesh.py", "bootstrap_main.py"}
    for path in PACKAGE.rglob("*.py"):
        inside = path.relative_to(PACKAGE).parts
        if inside[0] in ALIASES or (len(inside) == 1 and inside[0] in old):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            else:
                continue
            assert not [n for n in names if n.startswith(tuple(f"monarch.{a}" for a in ALIASES))], path


def test_an_unknown_name_of_an_alias_module_is_an_attribute_error() -> None:
    module = importlib.import_module("monarch._src.actor.endpoint")
    with pytest.raises(AttributeError, match=r"monarch\._src\.actor\.endpoint.*no_such_name"):
        module.no_such_name  # noqa: B018


@pytest.mark.parametrize("name", ["actor_mesh", "proc_mesh", "bootstrap_main"])
def test_old_modules_warn_and_give_their_names(name: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module = importlib.reload(importlib.import_module(f"monarch.{name}"))
    assert DeprecationWarning in [warning.category for warning in caught]
    if name == "actor_mesh":
        assert module.Actor is monarch.actor.Actor


def test_machinery_that_is_not_there_imports_and_says_so_when_used() -> None:
    module = importlib.import_module("monarch._rust_bindings.monarch_hyperactor.mailbox")
    with pytest.raises(NotImplementedError, match="Mailbox"):
        module.Mailbox()


def test_there_is_no_tensor_engine() -> None:
    assert importlib.import_module("monarch._rust_bindings").has_tensor_engine() is False
    with pytest.raises(ImportError, match="tensor engine"):
        monarch.remote  # noqa: B018


def test_the_root_gives_the_shapes() -> None:
    assert (monarch.Shape, monarch.NDSlice) == (monarch.actor.Shape, monarch.actor.Slice)
    assert repr(monarch.Selection.from_string("0")) == "Range(Range(0, Some(1), 1), True)"


def test_a_configuration_of_a_job() -> None:
    config = importlib.import_module("monarch.tools.config")
    workspace = config.Workspace(dirs=["/a/b", "/c"])
    assert workspace.dirs == {pathlib.Path("/a/b"): "b", pathlib.Path("/c"): "c"}
    assert config.Config(workspace=workspace).workspace is workspace
    with pytest.warns(FutureWarning, match="workspace='/x' is deprecated"):
        assert config.Config(workspace="/x").workspace.dirs == {pathlib.Path("/x"): ""}


class Sender(monarch.actor.Actor):
    """Sends to an address that somebody made up."""

    def __init__(self) -> None:
        self.returned: list[str] = []

    def _handle_undeliverable_message(self, message: Any) -> bool:
        self.returned.append(f"{message.sender()} {message.dest()} {message.error_msg()}")
        return True

    @monarch.actor.endpoint
    def send(self, port: Any) -> tuple[list[str], str]:
        port.send(1)
        return self.returned, str(monarch.actor.context().actor_instance.actor_id)


def test_what_is_sent_to_a_hand_made_port_comes_back_to_the_actor_that_sent_it() -> None:
    mailbox = importlib.import_module("monarch._rust_bindings.monarch_hyperactor.mailbox")
    proc = importlib.import_module("monarch._rust_bindings.monarch_hyperactor.proc")
    made_up = proc.ActorAddr(addr="local:0", proc_name="p", actor_name="a")
    port = importlib.import_module("monarch._src.actor.actor_mesh").Port(
        mailbox.PortRef(mailbox.PortId(actor_id=made_up, port=7))
    )
    sender = monarch.actor.this_proc().spawn("sender", Sender)
    returned, identity = sender.send.call_one(port).get(timeout=EVENT_S)
    assert len(returned) == 1
    assert returned[0].startswith(f"{identity} a.p@inproc://0[7] no message can be delivered")


def test_every_port_is_an_instance_of_the_aliased_class() -> None:
    port, _ = monarch.actor.Channel.open()
    assert isinstance(port, importlib.import_module("monarch._src.actor.actor_mesh").Port)


def test_addresses_print_and_parse() -> None:
    addr = importlib.import_module("monarch._rust_bindings.monarch_hyperactor.proc").ActorAddr
    address = addr.from_string("a.p@tcp://host:1")
    assert (address.label, address.proc_label, address.proc_id) == ("a", "p", "p@tcp://host:1")
    assert str(address) == "a.p@tcp://host:1"
    assert {address, addr(addr="tcp://host:1", proc_name="p", actor_name="a")} == {address}
    with pytest.raises(ValueError, match="no address of an actor"):
        addr.from_string("a")


def test_buffers_and_flatten() -> None:
    buffers = importlib.import_module("monarch._rust_bindings.monarch_hyperactor.buffers")
    buffer = buffers.Buffer()
    assert (buffer.write(b"ab\n"), buffer.write(b"cd"), len(buffer)) == (3, 2, 5)
    frozen = buffer.freeze()
    assert (len(buffer), len(frozen), frozen.readline(), len(frozen), frozen.read()) == (
        0,
        5,
        b"ab\n",
        2,
        b"cd",
    )
    module = importlib.import_module("monarch._src.actor.pickle")
    lifted, rest = module.flatten([1, "x", {"k": "y"}], lambda value: isinstance(value, str))
    assert lifted == ["x", "k", "y"]
    assert module.unflatten(rest.freeze(), ["X", "K", "Y"]) == [1, "X", {"K": "Y"}]


@pytest.mark.parametrize(
    "text, shown",
    [
        ("*,1:4,?", "All(Range(Range(1, Some(4), 1), Any(True)))"),
        ("1::2 | 5", "Union(Range(Range(1, None, 2), True), Range(Range(5, Some(6), 1), True))"),
        ("(:2|*),0", "Union(Range(Range(0, Some(2), 1), Range(Range(0, Some(1), 1), True)), All(Range(Range(0, Some(1), 1), True)))"),
    ],
)  # fmt: skip
def test_selections_parse(text: str, shown: str) -> None:
    assert repr(monarch.Selection.from_string(text)) == shown


@pytest.mark.parametrize("text", ["", "a", "1,", "(1", "1)", "1:2:", "* *", "& 1"])
def test_bad_selections_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a selection"):
        monarch.Selection.from_string(text)


def test_the_mesh_below_a_mesh_of_processes_has_its_region(spawn_procs: Any) -> None:
    tasks = importlib.import_module("monarch._rust_bindings.monarch_hyperactor.pytokio")
    procs = spawn_procs({"gpus": 2})

    async def look() -> Any:
        return (await procs.slice(gpus=1)._proc_mesh).region

    assert tasks.PythonTask.from_coroutine(look()).block_on() == procs.slice(gpus=1)._shape.region
    assert procs._proc_mesh.poll().region.labels == ["gpus"]

"""Every key there is: its name, its environment variable, its type and default, and what it does here."""

from __future__ import annotations

from typing import Any, NamedTuple

from monarch._config.kinds import (
    BOOL,
    DURATION,
    ENCODING,
    FLOAT,
    INT,
    OPTIONAL_DURATION,
    OPTIONAL_INT,
    TEXT,
    TRANSPORT,
    Kind,
)


class Key(NamedTuple):
    """One key.

    Attributes:
        default: as text; None for no value.
        acts: whether setting it changes anything.
        what: what it governs; for a key that does not act, why there is nothing to govern.
        local: not passed on to the processes that are spawned.
    """

    name: str
    env: str
    kind: Kind
    default: str | None
    acts: bool
    what: str
    local: bool = False

    def default_value(self) -> Any:
        return None if self.default is None else self.kind.parse(self.name, self.default)


def _group(prefix: str, acts: bool, what: str, *keys: tuple[str, Kind, str | None]) -> list[Key]:
    """Keys whose variable is the prefix and the name, for which the same holds."""
    return [Key(name, prefix + name.upper(), kind, default, acts, what) for name, kind, default in keys]


_CORE = "HYPERACTOR_"
_MESH = "HYPERACTOR_MESH_"

_ALL = [
    # --- what acts ---
    *_group(
        _MESH,
        True,
        "how hosts and clients that are not on one machine reach each other",
        ("default_transport", TRANSPORT, "ipc"),
    ),
    *_group(
        _MESH,
        True,
        "whether the output of processes spawned from now on can be streamed by ProcMesh.logging_option",
        ("enable_log_forwarding", BOOL, "false"),
    ),
    *_group(
        _MESH,
        True,
        "how many of the last lines of stderr a report of a death shows; 0: the 50 that are kept",
        ("tail_log_lines", INT, "0"),
    ),
    *_group(
        _CORE,
        True,
        "whether streamed lines begin with [host proc] [rank]",
        ("prefix_with_rank", BOOL, "true"),
    ),
    *_group(
        _CORE,
        True,
        "most bytes of a call's arguments, of an answer, or of a message to a port",
        ("codec_max_frame_length", INT, str(10 * 1024**3)),
    ),
    *_group(
        _CORE,
        True,
        "most time for each phase of a process's start; of this key and mesh_proc_spawn_max_idle, the one that was "
        "set holds, or the longer one; 0: no limit",
        ("host_spawn_ready_timeout", DURATION, "30s"),
    ),
    *_group(
        _CORE,
        True,
        "most time for each phase of a process's start, as host_spawn_ready_timeout",
        ("mesh_proc_spawn_max_idle", DURATION, "30s"),
    ),
    *_group(
        _MESH,
        True,
        "how much longer than process_exit_timeout a stop waits for the daemon's answer",
        ("proc_stop_max_idle", DURATION, "30s"),
    ),
    *_group(
        _CORE,
        True,
        "time for a process to leave by itself when it is told to stop, before it gets SIGTERM",
        ("process_exit_timeout", DURATION, "10s"),
    ),
    *_group(_CORE, True, "most time for a mesh's actors to stop", ("stop_actor_timeout", DURATION, "10s")),
    *_group(_CORE, True, "most time for an actor's __cleanup__", ("cleanup_timeout", DURATION, "3s")),
    *_group(
        _CORE,
        True,
        "most time to pass the configuration on to a host that is attached to",
        ("mesh_attach_config_timeout", DURATION, "1m"),
    ),
    *_group(
        "MONARCH_",
        True,
        "a process in which an actor failed takes no further spawns, and a call to a stopped mesh fails the caller",
        ("strict_peer_semantics", BOOL, "false"),
    ),
    *_group(
        "MONARCH_",
        True,
        "after which time in one handler the owner is told that an actor hangs, for meshes that are spawned without "
        "hung_after_s; 0: never",
        ("hung_after", DURATION, "0s"),
    ),
    # --- what does not ---
    *_group(
        _MESH,
        False,
        "the session's log always has the workers' output",
        ("enable_file_capture", BOOL, "false"),
    ),
    *_group(
        _CORE,
        False,
        "lines are streamed as they come, and the session's log is always a file",
        ("read_log_buffer", INT, "100"),
        ("force_file_log", BOOL, "false"),
    ),
    *_group(
        _CORE,
        False,
        "a message to a living process is delivered, or its sender gets the error at once",
        ("message_delivery_timeout", DURATION, "30s"),
        ("message_ack_time_interval", DURATION, "500ms"),
        ("message_ack_every_n_messages", INT, "1000"),
        ("message_ttl_default", INT, "64"),
        ("message_latency_sampling_rate", FLOAT, "0.01"),
        ("forwarder_flush_timeout", DURATION, "5s"),
    ),
    *_group(
        _CORE,
        False,
        "messages are not split, reordered or encoded in a way that could be chosen",
        ("split_max_buffer_size", INT, "5"),
        ("split_max_buffer_age", DURATION, "50ms"),
        ("enable_dest_actor_reordering_buffer", BOOL, "true"),
        ("sequencer_max_locked_keys", INT, "128"),
        ("default_encoding", ENCODING, "serde_multipart"),
    ),
    *_group(
        "MONARCH_HYPERACTOR_",
        False,
        "small buffers stay in the message's stream, up to 1 KiB",
        ("small_write_threshold", INT, "256"),
    ),
    *_group(
        _CORE,
        False,
        "the daemons own the connections between hosts; their options are monarchd's",
        ("channel_net_rx_buffer_full_check_interval", DURATION, "5s"),
        ("channel_reconnect_timeout", DURATION, "1m"),
        ("channel_tcp_keepalive_idle", DURATION, "1m"),
        ("channel_tcp_congestion", TEXT, ""),
        ("server_heartbeat_interval", DURATION, "1s"),
    ),
    *(
        key._replace(local=True)
        for key in _group(
            "",
            False,
            "the daemons own the connections between hosts; certificates are monarchd's options",
            ("hyperactor_tls_cert", TEXT, "/etc/hyperactor/tls/tls.crt"),
            ("hyperactor_tls_key", TEXT, "/etc/hyperactor/tls/tls.key"),
            ("hyperactor_tls_ca", TEXT, "/etc/hyperactor/tls/ca.crt"),
        )
    ),
    *_group(
        _MESH,
        False,
        "deaths are told by the kernel: nothing asks for states or watches silence",
        ("get_actor_state_max_idle", DURATION, "30s"),
        ("get_proc_state_max_idle", DURATION, "1m"),
        ("supervision_watchdog_timeout", DURATION, "2m"),
        ("actor_spawn_max_idle", DURATION, "30s"),
    ),
    *_group(
        _CORE,
        False,
        "deaths are told by the kernel: nothing asks for states or watches silence",
        ("mesh_orphan_timeout", OPTIONAL_DURATION, "1m"),
    ),
    *_group(
        _CORE,
        False,
        "the daemon keeps what it tells of ended processes by its own limits",
        ("terminated_snapshot_retention", INT, "100"),
        ("process_memory_metric_interval", DURATION, "5m"),
    ),
    *_group(
        _CORE,
        False,
        "a session's end is the launcher's: all workers at once, and none outlives it",
        ("mesh_terminate_concurrency", INT, "16"),
        ("mesh_terminate_timeout", DURATION, "10s"),
        ("mesh_bootstrap_enable_pdeathsig", BOOL, "true"),
    ),
    *_group(_MESH, False, "the daemon starts processes in one way", ("proc_launcher_kind", TEXT, "")),
    *_group(
        _MESH,
        False,
        "a cast is one message for each receiver",
        ("max_cast_dimension_size", INT, "16"),
        ("max_cast_fanout", INT, "16"),
    ),
    *_group(
        "MONARCH_",
        False,
        "there is no such thread pool and no such task",
        ("tokio_worker_threads", OPTIONAL_INT, None),
    ),
    *_group(
        "MONARCH_HYPERACTOR_",
        False,
        "there is no such thread pool and no such task",
        ("enable_unawaited_python_task_traceback", BOOL, "false"),
    ),
    *_group(
        _CORE,
        False,
        "monarchctl asks the daemon; there is no HTTP server",
        ("mesh_admin_addr", TEXT, "[::]:1729"),
        ("mesh_admin_max_concurrent_resolves", INT, "2"),
        ("mesh_admin_resolve_actor_timeout", DURATION, "200ms"),
        ("mesh_admin_query_child_timeout", DURATION, "100ms"),
        ("mesh_admin_single_host_timeout", DURATION, "3s"),
        ("mesh_admin_tree_timeout", DURATION, "10s"),
        ("mesh_admin_config_dump_bridge_timeout", DURATION, "5s"),
        ("mesh_admin_pyspy_timeout", DURATION, "10s"),
        ("mesh_admin_pyspy_bridge_timeout", DURATION, "13s"),
        ("mesh_admin_pyspy_client_timeout", DURATION, "20s"),
        ("mesh_admin_pyspy_max_profile_duration", DURATION, "5m"),
    ),
    *_group("", False, "monarchctl takes no profiles", ("pyspy_bin", TEXT, "")),
    *_group(
        "MONARCH_",
        False,
        "there are no one-sided transfers yet",
        ("rdma_max_chunk_size_mb", INT, "64"),
        ("rdma_allow_tcp_fallback", BOOL, "true"),
        ("rdma_disable_ibverbs", BOOL, "false"),
        ("rdma_tcp_fallback_parallelism", INT, "1"),
        ("rdma_cq_busy_poll_window", OPTIONAL_DURATION, None),
        ("rdma_qp_init_timeout", DURATION, "30s"),
        ("rdma_ibverbs_target", TEXT, ""),
        ("rdma_peer_device_affinity", TEXT, ""),
        ("rdma_qps_per_cq", INT, "1"),
        ("rdma_runtime_worker_threads", INT, "16"),
    ),
]

KEYS: dict[str, Key] = {key.name: key for key in _ALL}

"""Names that can be imported, and raise when they are used: machinery that monarchd does not have."""

from __future__ import annotations

from typing import Any, NoReturn

# Whether this is a program packed into one file.
IN_PAR = False

# What the probe of a future ends with.
_PROBE_SUCCESS_VALUE = 42


def has_tensor_engine() -> bool:
    """Whether tensors can be spread over meshes."""
    return False


class _Absent(type):
    """A class that can be named in annotations, and neither made nor looked into."""

    def _refuse(cls) -> NoReturn:
        raise NotImplementedError(
            f"{cls.__name__} is internal machinery that monarchd does not have; use the names of monarch.actor"
        )

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        cls._refuse()

    def __getitem__(cls, item: Any) -> Any:
        return cls

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        cls._refuse()


_NAMES = frozenset(
    [
        "Actor",
        "HyProcMesh",
        "LoggingManager",
        "Mailbox",
        "PatchRustClass",
        "PendingMessage",
        "PlainMixin",
        "PortProtocol",
        "PyTestSender",
        "PyTestWaker",
        "PythonActorMesh",
        "TestStruct",
        "TraitMixin",
        "UndeliverableMessageEnvelope",
        "_force_unsanctioned_gil_on_control_plane",
        "_get_gil_on_control_plane",
        "_make_handle_probe",
        "_make_test_struct",
        "_reset_gil_on_control_plane",
        "_spawn_admin",
        "channel_for_test",
        "flush_all_proc_mesh_logs",
        "pickle",
        "probe_exit_port_via_mesh",
    ]
)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()[name] = _Absent(name, (), {"__module__": __name__})
    return made

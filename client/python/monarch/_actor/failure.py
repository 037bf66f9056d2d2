"""The one type of failure, and how it is told to people."""

from __future__ import annotations

import textwrap
from typing import Any

from monarch._config.layers import layers

_STARTED_FROM_ROOT = "<root>"
_INDENT = "    "


class FailureEvent:
    """How something ended. The same fields as in C++, in `monarchctl` and in the logs.

    Attributes:
        kind: "exception", "exited", "signalled", "out_of_memory", "unreachable", "hung", "stopped", "start_failed".
        mesh, rank, rank_label: which member of which mesh; the label is like "{'gpus': 3/8}".
        actor_class: "module.Class"; "" for a process.
        host_name, pid: where it ran.
        code: exit status, or number of the signal.
        phase: for "start_failed": accepted, launched, connected or ready.
        reason: one line. traceback (Python's), backtrace (the native frames of a crash), stderr_tail: more lines, when
            known.
        cause: what this failure follows from, or None.
    """

    __slots__ = ("_fields", "_is_final")

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields
        self._is_final = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name == "cause":
            inner = self._fields.get("cause") or []
            return FailureEvent(inner[0]) if inner else None
        if name in ("rank", "pid", "code", "unix_ms"):
            return self._fields.get(name, 0)
        if name == "stderr_tail":
            return _last_lines(self._fields.get(name, ""))
        if name in _TEXTS:
            return self._fields.get(name, "")
        raise AttributeError(f"a failure event has no field {name!r}")

    def completed(self) -> FailureEvent:
        """This event, now with what became known of a process's death after it was told. Waits for that, briefly."""
        if not self._is_final:
            from monarch._actor import process

            self._is_final = True
            if process.exists():
                _, mark, note = self.reason.partition(RESTARTS_GIVEN_UP)
                self._fields = process.process().runtime.with_detail(self._fields, _DETAIL_S)
                if mark and mark not in self.reason:
                    self._fields = {**self._fields, "reason": f"{self.reason} {mark}{note}".strip()}
        return self

    def as_dict(self) -> dict[str, Any]:
        return self._fields

    def __reduce__(self) -> Any:
        return (FailureEvent, (self._fields,))

    def __repr__(self) -> str:
        return f"FailureEvent({self.summary or self.kind})"


def _last_lines(text: str) -> str:
    lines: int = layers.effective["tail_log_lines"]
    return "\n".join(text.splitlines()[-lines:]) if lines else text


# How a restart policy begins what it adds to the reason of a failure that it lets climb.
RESTARTS_GIVEN_UP = "(restarts are given up: "
# The dead process's last words are there milliseconds after its death, or, if it was large, a tenth of a second.
_DETAIL_S = 2.0
_TEXTS = frozenset(
    (
        "kind",
        "mesh",
        "rank_label",
        "actor_class",
        "host_name",
        "phase",
        "reason",
        "traceback",
        "backtrace",
        "summary",
    )
)


def display_name(event: FailureEvent, owner_label: str = _STARTED_FROM_ROOT) -> str:
    """The actor as reports name it: the chain of its spawners, its class, mesh and coordinates."""
    what = event.actor_class or "proc"
    return f"{owner_label}.<{what} {event.mesh}{event.rank_label}>"


def _where(event: FailureEvent) -> str:
    parts = [f"rank {event.rank}"]
    if event.pid:
        parts.append(f"pid {event.pid}")
    if event.host_name:
        parts.append(f"host {event.host_name}")
    return ", ".join(parts)


def _signal_name(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _ending(event: FailureEvent) -> str:
    process = "the process this actor was running on failed" if event.actor_class else "the process failed"
    if event.kind == "signalled":
        return (
            f"{process}: Killed(sig={event.code}): killed by signal {event.code} "
            f"({_signal_name(event.code)}), {_where(event)}"
        )
    if event.kind == "exited" and event.code == 0:  # More follows: a status of 0, or a signal.
        return f"{process}: it has ended, {_where(event)}"
    if event.kind == "exited":
        return f"{process}: exited with non-zero code {event.code}, {_where(event)}"
    if event.kind == "out_of_memory":
        return f"{process}: Killed(sig={event.code or 9}): killed by the kernel for lack of memory, {_where(event)}"
    if event.kind == "unreachable":
        return f"the host is unreachable, {_where(event)}"
    if event.kind == "hung":
        return f"hung, {_where(event)}"
    if event.kind == "start_failed":
        return f"failed to start in phase {event.phase or 'unknown'}, {_where(event)}"
    return ""


def _own_reason(event: FailureEvent) -> str:
    """Why, without who and without what came before: possibly many lines."""
    lines = []
    ending = _ending(event)
    if ending:
        lines.append(ending)
    if event.traceback:
        lines.append(event.traceback.rstrip())
    elif event.reason and event.reason not in ending:
        lines.append(event.reason)
    if event.backtrace:
        lines.append("native back-trace:\n" + textwrap.indent(event.backtrace, _INDENT))
    if event.stderr_tail:
        lines.append("last lines of stderr:\n" + textwrap.indent(event.stderr_tail.rstrip(), _INDENT))
    return "\n".join(lines) or "no reason is known"


def _is_unhandled_child(event: FailureEvent) -> bool:
    """Else what has a cause failed by itself, while it handled that."""
    return event.cause is not None and not event.traceback


def event_line(event: FailureEvent, owner_label: str = _STARTED_FROM_ROOT) -> str:
    """What happened to the actor, and below it what happened to the child that this follows from."""
    name = display_name(event, owner_label)
    if event.kind == "stopped":
        return f"Supervision event: actor {name} has status: stopped: {event.reason}"
    lines = [_own_reason(event)]
    if event.cause is not None:
        lines.append(textwrap.indent(event_line(event.cause, name), _INDENT))
    return f"Supervision event: actor {name} failed:\n" + textwrap.indent("\n".join(lines), _INDENT)


def failure_text(event: FailureEvent, owner_label: str = _STARTED_FROM_ROOT) -> str:
    """What a caller's SupervisionError and a failure report say: who failed first and why, then the owners that did
    not handle it."""
    if event.kind == "stopped":
        return event_line(event, owner_label)
    name = display_name(event, owner_label)
    if _is_unhandled_child(event):
        return f"{failure_text(event.cause, name)}\n{event.reason} {_in_short(event.cause, name)}"
    lines = [_own_reason(event)]
    if event.cause is not None:
        lines.append(textwrap.indent(failure_text(event.cause, name), _INDENT))
    head = f"The actor {name} and all its descendants have failed:\n"
    return head + textwrap.indent("\n".join(lines), _INDENT)


def _in_short(event: FailureEvent, owner_label: str) -> str:
    return f"actor {display_name(event, owner_label)} {'stopped' if event.kind == 'stopped' else 'failed'}"


def unhandled_child_event(child: FailureEvent, name: str) -> dict[str, Any]:
    """The failure of an owner that did not handle its child's."""
    return {
        "kind": "exception",
        "reason": f"The actor {name} failed because it did not handle a supervision event from its child. "
        "The event was:",
        "cause": [child.as_dict()],
    }


def raised_while_handling_event(child: FailureEvent, traceback: str, reason: str) -> dict[str, Any]:
    """The failure of an owner whose __supervise__ raised."""
    return {
        "kind": "exception",
        "reason": reason,
        "traceback": f"{traceback.rstrip()}\nThis error occurred while handling another failure:",
        "cause": [child.as_dict()],
    }


class MeshFailure:
    """The failure of one member of a mesh, as `__supervise__` and `unhandled_fault_hook` get it.

    Attributes:
        mesh_name: the name given at the spawn, or "<none>".
        mesh: always None.
        crashed_ranks: the ranks that failed, in the mesh as spawned.
    """

    def __init__(self, event: FailureEvent, owner_label: str = _STARTED_FROM_ROOT) -> None:
        self._event = event
        self.mesh = None
        self.mesh_name = event.mesh or "<none>"
        self.crashed_ranks = [event.rank]
        self._owner_label = owner_label

    @property
    def event(self) -> FailureEvent:
        """What happened, in fields. Of a dead process it waits for the last words, at most 2 s."""
        return self._event.completed()

    def report(self) -> str:
        """The failure and its causes, for people. Waits as `event` does."""
        return failure_text(self.event, self._owner_label)

    def __str__(self) -> str:
        line = event_line(self._event, self._owner_label)
        return f"MeshFailure(mesh_name={self.mesh_name}, crashed_ranks={self.crashed_ranks}, event={line})"

    __repr__ = __str__

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle 'MeshFailure' object")

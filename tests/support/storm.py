"""Callers in threads and in a loop call several meshes, while workers and owners of meshes are killed, frozen and stopped."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import itertools
import os
import random
import signal
import struct
import threading
from collections.abc import Callable
from typing import Any

from monarch.actor import Actor, Backoff, Restart, current_rank, endpoint, this_host

# A call that has not ended by then has no end: what it may wait for takes some seconds at most.
END_S = 30.0
THREADS, TASKS = 4, 4
MEMBERS = 2
FROZEN_S = 0.05
# All calls of a mesh, in place of one of its members.
CAST_SHARE = 0.25
AT_ONCE = Backoff(first_s=0, jitter=0)


class Echo(Actor):
    """Writes down each call that it runs before it answers: nobody may run one twice, in whatever incarnation."""

    def __init__(self, name: str, ledger: str) -> None:
        self._name = name
        self._rank = current_rank().rank
        self._ledger = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    @endpoint
    def say(self, number: int, text: bytes) -> tuple[str, int, int, bytes]:
        os.write(self._ledger, struct.pack("=QQ", number, self._rank))
        return (self._name, self._rank, number, text)


class EchoOwner(Actor):
    @endpoint
    def own(self, name: str, ledger: str) -> tuple[Any, Any]:
        self._procs = this_host().spawn_procs({"gpus": MEMBERS}, name=f"{name}-procs")
        self._mesh = self._procs.spawn(name, Echo, name, ledger)
        self._mesh.say.call(0, b"").get(timeout=END_S)
        return self._mesh, list(self._procs.pids())


@dataclasses.dataclass
class Mesh:
    name: str
    mesh: Any
    procs: Any  # of the members; those of the owner, if that is another
    pids: Callable[[], list[int]]
    restarted: bool
    ended: bool = False


POLICIES: tuple[Callable[..., Any] | None, ...] = (
    None,
    None,
    Restart.one_for_one,
    Restart.one_for_all,
    Restart.rest_for_one,
)
OWNED = len(POLICIES)  # the number of the slot whose mesh is owned by an actor


class Storm:
    def __init__(self, seed: int, ledger: str) -> None:
        self.random = random.Random(seed)
        self.ledger = ledger
        self.lock = threading.Lock()
        self.names = itertools.count()
        self.numbers = itertools.count(1)
        self.slots = [self.spawn(slot) for slot in range(OWNED + 1)]
        self.left = 0
        self.pause = 0
        self.progress = threading.Condition()
        self.ended = 0
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.actions: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []
        self.answered: list[tuple[int, int]] = []  # number of the call, rank that answered

    # --- meshes ---

    def spawn(self, slot: int) -> Mesh:
        name = f"echo{next(self.names)}"
        if slot == OWNED:
            procs = this_host().spawn_procs({"gpus": 1}, name=f"{name}-owner")
            owner = procs.spawn(f"{name}-owner", EchoOwner)
            mesh, pids = owner.own.call_one(name, self.ledger).get(timeout=END_S)
            return Mesh(name, mesh, procs, lambda: [*pids, *procs.pids()], False)
        policy = POLICIES[slot]
        restart = policy(max_restarts=10**6, within_s=60, backoff=AT_ONCE) if policy else None
        procs = this_host().spawn_procs({"gpus": MEMBERS}, name=f"{name}-procs", restart=restart)
        mesh = procs.spawn(name, Echo, name, self.ledger)
        procs.initialized.get(timeout=END_S)
        return Mesh(name, mesh, procs, lambda: list(procs.pids()), restart is not None)

    def renew(self, slot: int) -> None:
        old = self.slots[slot]
        fresh = self.spawn(slot)
        with self.lock:
            self.slots[slot] = fresh
        old.procs.stop().get(timeout=END_S)

    # --- callers ---

    def take(self, chance: random.Random) -> tuple[Mesh, int, int | None, bytes] | None:
        with self.lock:
            if self.left == 0:
                return None
            self.left -= 1
            mesh = self.slots[chance.randrange(len(self.slots))]
            rank = None if chance.random() < CAST_SHARE else chance.randrange(MEMBERS)
            return mesh, next(self.numbers), rank, chance.randbytes(chance.choice((0, 40, 9000)))

    @staticmethod
    def begin(mesh: Mesh, number: int, rank: int | None, text: bytes) -> Any:
        if rank is None:
            return mesh.mesh.say.call(number, text)
        return mesh.mesh.slice(gpus=rank).say.call_one(number, text)

    def check(self, call: tuple[Mesh, int, int | None, bytes], value: Any) -> None:
        mesh, number, rank, text = call
        ranks = range(MEMBERS) if rank is None else (rank,)
        values = list(value.values()) if rank is None else [value]
        if values != [(mesh.name, each, number, text) for each in ranks]:
            self.wrong.append(f"call {number} of {mesh.name}[{rank}]: {str(values)[:200]}")
        self.answered += [(number, each) for each in ranks]

    def end(self, call: tuple[Mesh, int, int | None, bytes], error: BaseException | None) -> None:
        outcome = "answered"
        if error is not None:
            kind = getattr(getattr(error, "event", None), "kind", "")
            outcome = f"{type(error).__name__} {kind}".strip()
            if isinstance(error, TimeoutError):
                self.wrong.append(f"no end of call {call[1]} to {call[0].name}[{call[2]}]")
            elif kind not in ("signalled", "stopped", "unreachable", "start_failed"):
                self.wrong.append(f"call {call[1]} to {call[0].name}[{call[2]}]: {error!r}")
        with self.progress:
            self.outcomes[outcome] += 1
            self.ended += 1
            self.progress.notify_all()

    def call_from_thread(self, chance: random.Random) -> None:
        while call := self.take(chance):
            error: BaseException | None = None
            try:
                self.check(call, self.begin(*call).get(timeout=END_S))
            except Exception as raised:
                error = raised
            self.end(call, error)

    async def call_from_task(self, chance: random.Random) -> None:
        while call := self.take(chance):
            error: BaseException | None = None
            try:
                self.check(call, await asyncio.wait_for(self.begin(*call).as_asyncio(), END_S))
            except Exception as raised:
                error = raised
            self.end(call, error)

    async def call_from_tasks(self, chances: list[random.Random]) -> None:
        await asyncio.gather(*(self.call_from_task(chance) for chance in chances))

    # --- harm ---

    def harm(self) -> None:
        slot = self.random.randrange(len(self.slots))
        mesh = self.slots[slot]
        action = self.random.choice(("kill", "kill", "freeze", "stop"))
        self.actions[action] += 1
        if action == "stop":
            (mesh.mesh if self.random.random() < 0.5 and slot != OWNED else mesh.procs).stop().get(
                timeout=END_S
            )
            self.renew(slot)
            return
        pid = self.random.choice(mesh.pids())
        try:
            os.kill(pid, signal.SIGKILL if action == "kill" else signal.SIGSTOP)
        except ProcessLookupError:  # It is being started again.
            return
        if action == "freeze":
            thaw = threading.Timer(FROZEN_S, _go_on, (pid,))
            thaw.start()
            thaw.join()
        elif not mesh.restarted:
            self.renew(slot)

    def run(self, calls: int, calls_per_action: int) -> dict[str, Any]:
        self.left, self.ended = calls, 0
        chances = [random.Random(self.random.random()) for _ in range(THREADS + TASKS)]
        threads = [threading.Thread(target=self.call_from_thread, args=(c,)) for c in chances[:THREADS]]
        threads.append(threading.Thread(target=lambda: asyncio.run(self.call_from_tasks(chances[THREADS:]))))
        for thread in threads:
            thread.start()
        for due in range(calls_per_action, calls, calls_per_action):
            with self.progress:
                if not self.progress.wait_for(lambda due=due: self.ended >= due, 2 * END_S):
                    self.wrong.append(f"no progress after {self.ended} calls")
                    break
            self.harm()
        for thread in threads:
            thread.join(2 * END_S)
        return {"sent": calls, "ended": self.ended, "hung": sum(thread.is_alive() for thread in threads)}

    def report(self) -> dict[str, Any]:
        return {
            "outcomes": dict(self.outcomes),
            "actions": dict(self.actions),
            "wrong": self.wrong[:20],
            "ledger": self.look_at_ledger(),
        }

    def look_at_ledger(self) -> list[str]:
        """What is wrong with it."""
        with open(self.ledger, "rb") as file:
            data = file.read()
        runs = collections.Counter(run for run in struct.iter_unpack("=QQ", data) if run[0])
        wrong = [f"call {run} ran {count} times" for run, count in runs.items() if count > 1]
        wrong += [f"call {run} was answered and never ran" for run in self.answered if run not in runs]
        answers = collections.Counter(self.answered)
        return wrong + [
            f"call {run} was answered {count} times" for run, count in answers.items() if count > 1
        ]

    def stop(self) -> None:
        for mesh in self.slots:
            mesh.procs.stop().get(timeout=END_S)


def _go_on(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def storm(seed: int, ledger: str, calls: int, calls_per_action: int) -> dict[str, Any]:
    one = Storm(seed, ledger)
    result = one.run(calls, calls_per_action)
    one.stop()
    return {**result, **one.report()}

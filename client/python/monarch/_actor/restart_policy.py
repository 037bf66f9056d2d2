"""When failed members of a mesh are started again, and when that is given up. Pure: time and chance are passed in."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from monarch._actor.failure import FailureEvent

ONE_FOR_ONE = "one_for_one"
ONE_FOR_ALL = "one_for_all"
REST_FOR_ONE = "rest_for_one"

_FACTOR_MAX = 10.0
_EXPONENT_MAX = 64  # beyond, every wait has long met its cap; and no power overflows


def _number(name: str, value: object, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise ValueError(f"{name} is a number from {least:g} to {most:g}, not {value!r}")
    return float(value)


class Backoff:
    """How long to wait before a restart: longer each time, up to a cap, less a random share.

    Args:
        first_s: seconds before the first restart of the period.
        factor: by which each further one waits longer, 1 to 10.
        max_s: no wait is longer.
        jitter: the share of a wait that is random, 0 to 1, so that what failed together does not start together.
    """

    __slots__ = ("factor", "first_s", "jitter", "max_s")

    def __init__(
        self, first_s: float = 0.1, factor: float = 2.0, max_s: float = 10.0, jitter: float = 0.5
    ) -> None:
        self.first_s = _number("first_s", first_s, 0.0, 3600.0)
        self.factor = _number("factor", factor, 1.0, _FACTOR_MAX)
        self.max_s = _number("max_s", max_s, 0.0, 3600.0)
        self.jitter = _number("jitter", jitter, 0.0, 1.0)

    def delay_s(self, earlier: int, chance: float) -> float:
        """Before a restart that follows `earlier` ones; `chance` is from 0 to 1."""
        wait = min(self.max_s, self.first_s * self.factor ** min(earlier, _EXPONENT_MAX))
        return wait * (1.0 - self.jitter * chance)


class RestartEvent(NamedTuple):
    """What `on_restart` gets.

    Attributes:
        mesh: its name.
        ranks: those that were started again, in the mesh as spawned.
        cause: the failure that led to it, the first one if there were several.
        incarnation: the mesh's from now on.
    """

    mesh: str
    ranks: tuple[int, ...]
    cause: FailureEvent
    incarnation: int


OnRestart = Callable[[RestartEvent], object]


class Restart:
    """A mesh's restart policy, in the words of OTP's supervisors; made by the three methods.

    Members are *transient*: a failure starts them again; a stop, and an exit with status 0, do not.
    """

    __slots__ = ("backoff", "max_restarts", "on_restart", "strategy", "within_s")

    def __init__(
        self,
        strategy: str,
        max_restarts: int,
        within_s: float,
        backoff: Backoff | None,
        on_restart: OnRestart | None,
    ) -> None:
        if isinstance(max_restarts, bool) or not isinstance(max_restarts, int) or max_restarts < 0:
            raise ValueError(f"max_restarts is a number of restarts of at least 0, not {max_restarts!r}")
        if not isinstance(backoff, (Backoff, type(None))):
            raise TypeError(f"backoff is a Backoff, not {backoff!r}")
        if on_restart is not None and not callable(on_restart):
            raise TypeError(f"on_restart is a function of one argument, not {on_restart!r}")
        self.strategy = strategy
        self.max_restarts = max_restarts
        self.within_s = _number("within_s", within_s, 0.0, math.inf)
        self.backoff = backoff or Backoff()
        self.on_restart = on_restart

    @staticmethod
    def one_for_one(
        max_restarts: int = 3,
        within_s: float = 60.0,
        backoff: Backoff | None = None,
        on_restart: OnRestart | None = None,
    ) -> Restart:
        """Starts again the member that failed, and no other.

        Args:
            max_restarts: the restart intensity. One failure more within `within_s` seconds, and the mesh is given up:
                the failure climbs to the mesh's owner as without a policy. Each failure that leads to a restart counts.
            within_s: the period of the intensity.
            backoff: waits before restarts.
            on_restart: called with a `RestartEvent` after each restart, in the owner's process on a thread of its own.
        """
        return Restart(ONE_FOR_ONE, max_restarts, within_s, backoff, on_restart)

    @staticmethod
    def one_for_all(
        max_restarts: int = 3,
        within_s: float = 60.0,
        backoff: Backoff | None = None,
        on_restart: OnRestart | None = None,
    ) -> Restart:
        """When one member fails, stops the others, and starts all again. Arguments as for `one_for_one`."""
        return Restart(ONE_FOR_ALL, max_restarts, within_s, backoff, on_restart)

    @staticmethod
    def rest_for_one(
        max_restarts: int = 3,
        within_s: float = 60.0,
        backoff: Backoff | None = None,
        on_restart: OnRestart | None = None,
    ) -> Restart:
        """When one member fails, stops those of higher ranks, and starts it and them again. Arguments as for
        `one_for_one`."""
        return Restart(REST_FOR_ONE, max_restarts, within_s, backoff, on_restart)

    def __str__(self) -> str:
        return f"{self.strategy}, at most {self.max_restarts} within {self.within_s:g} s"

    def affected(self, rank: int, size: int) -> range:
        """The ranks that start again when `rank` of `size` has failed."""
        if self.strategy == ONE_FOR_ONE:
            return range(rank, rank + 1)
        return range(0 if self.strategy == ONE_FOR_ALL else rank, size)


class RestartMachine:
    """Decides about one mesh: what happened goes in, ranks come out.

        up --failed--> waiting --start_due--> starting --started--> up
                 \\                ^               |
          given up <-------------- start_failed --+

    A member that is waiting or starting has failed already: that it fails again, or is ended for another's sake, is
    no news. The starts that fail in a row count together however long they take, so a restart always ends.
    """

    def __init__(self, policy: Restart, size: int) -> None:
        self.policy = policy
        self.size = size
        self.waiting: set[int] = set()
        self.starting: set[int] = set()
        self.due: float | None = None  # when those that wait are to be started
        self.given_up = False
        self._restarts: deque[float] = deque()

    def failed(self, rank: int, now: float, chance: float) -> list[int]:
        """The ranks that are out of service from now on, `rank` first: the others are to be stopped. None: no news, or
        given up."""
        if self.given_up or rank in self.waiting or rank in self.starting:
            return []
        if not self._count(now, chance):
            return []
        down = set(self.policy.affected(rank, self.size)) - self.waiting - self.starting
        self.waiting |= down
        return [rank, *sorted(down - {rank})]

    def start_due(self, now: float) -> list[int]:
        """The ranks that are to be started now, in order. Their start is over with `started` or `start_failed`."""
        if self.due is None or now < self.due or self.starting:
            return []
        self.starting, self.waiting = self.waiting, set()
        self.due = None
        return sorted(self.starting)

    def started(self) -> None:
        self.starting = set()

    def start_failed(self, now: float, chance: float) -> None:
        """They wait again, or it is given up."""
        if not self.given_up and self._count(now, chance):
            self.waiting |= self.starting
        self.starting = set()

    def give_up(self) -> None:
        self.given_up = True
        self.waiting = set()
        self.due = None

    def _count(self, now: float, chance: float) -> bool:
        """Whether one more restart is within the intensity."""
        if not self.waiting and not self.starting:
            while self._restarts and now - self._restarts[0] > self.policy.within_s:
                self._restarts.popleft()
        earlier = len(self._restarts)
        if earlier >= self.policy.max_restarts:
            self.give_up()
            return False
        self._restarts.append(now)
        due = now + self.policy.backoff.delay_s(earlier, chance)
        self.due = due if self.due is None else max(self.due, due)
        return True

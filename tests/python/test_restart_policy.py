"""The decisions about restarts, against a second description of the same rules, on random histories."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from monarch._actor.restart_policy import RestartMachine
from monarch.actor import Backoff, Restart

STRATEGIES = {
    "one_for_one": Restart.one_for_one,
    "one_for_all": Restart.one_for_all,
    "rest_for_one": Restart.rest_for_one,
}
SEEDS = 3000 if os.environ.get("MONARCH_TEST_FULL") else 300


class Reference:
    """The rules once more, with a state for each member and the whole history kept."""

    def __init__(self, strategy: str, size: int, max_restarts: int, within_s: float) -> None:
        self.strategy = strategy
        self.state = ["up"] * size
        self.max_restarts = max_restarts
        self.within_s = within_s
        self.history: list[tuple[float, int]] = []  # when, and in which series of restarts
        self.series = 0
        self.over = False

    def _one_more(self, now: float) -> bool:
        quiet = all(state == "up" for state in self.state)
        if quiet:
            self.series += 1
        recent = [(when, series) for when, series in self.history if self._counts(when, series, now)]
        if len(recent) >= self.max_restarts:
            self.over = True
            return False
        self.history.append((now, self.series))
        return True

    def _counts(self, when: float, series: int, now: float) -> bool:
        # Within a series the period stands still at the series' start.
        start = next((w for w, s in self.history if s == self.series), now)
        return series == self.series or start - when <= self.within_s

    def failed(self, rank: int, now: float) -> set[int]:
        if self.over or self.state[rank] != "up" or not self._one_more(now):
            return set()
        others = {
            "one_for_one": lambda other: False,
            "one_for_all": lambda other: True,
            "rest_for_one": lambda other: other > rank,
        }[self.strategy]
        down = {r for r, s in enumerate(self.state) if s == "up" and (r == rank or others(r))}
        for r in down:
            self.state[r] = "waiting"
        return down

    def start(self) -> set[int]:
        begun = {r for r, s in enumerate(self.state) if s == "waiting"}
        for r in begun:
            self.state[r] = "starting"
        return begun

    def end_start(self, ok: bool, now: float) -> None:
        more = ok or self.over or self._one_more(now)
        for r, s in enumerate(self.state):
            if s == "starting":
                self.state[r] = "up" if ok else "waiting" if more and not self.over else "dead"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_decisions_on_random_histories_are_those_of_the_rules(strategy: str) -> None:
    given_up = restarted = 0
    for seed in range(SEEDS):
        chance = random.Random(seed)
        size, limit, within = chance.randint(1, 6), chance.randint(0, 5), chance.choice([1.0, 5.0, 60.0])
        backoff = Backoff(first_s=chance.choice([0.0, 0.1, 2.0]), max_s=3.0)
        machine = RestartMachine(STRATEGIES[strategy](limit, within, backoff), size)
        reference = Reference(strategy, size, limit, within)
        now = 1000.0
        for _ in range(60):
            now += chance.choice([0.0, 0.01, 0.5, 3.0, within])
            where = f"seed {seed} at {now}"
            event = chance.choice(["failed", "failed", "due", "started", "start_failed"])
            if event == "failed":
                rank = chance.randrange(size)
                down = machine.failed(rank, now, chance.random())
                assert set(down) == reference.failed(rank, now), where
                assert not down or (down[0] == rank and down[1:] == sorted(down[1:])), where
            elif event == "due" and machine.due is not None and not machine.starting:
                assert machine.due - now <= backoff.max_s, where
                assert machine.start_due(machine.due - 1e-6) == [] or machine.due is None, where
                now = max(now, machine.due)
                begun = machine.start_due(now)
                assert begun == sorted(reference.start()), where
                restarted += len(begun)
            elif event in ("started", "start_failed") and machine.starting:
                ok = event == "started"
                machine.started() if ok else machine.start_failed(now, chance.random())
                reference.end_start(ok, now)
            assert machine.given_up == reference.over, where
            if not machine.given_up:
                assert machine.waiting == {r for r, s in enumerate(reference.state) if s == "waiting"}, where
                assert machine.starting == {r for r, s in enumerate(reference.state) if s == "starting"}, (
                    where
                )
                assert (machine.due is not None) == bool(machine.waiting), where
        given_up += machine.given_up
    assert given_up and restarted  # both ends were met


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_restarts_never_exceed_the_intensity_in_any_period(strategy: str) -> None:
    for seed in range(SEEDS):
        chance = random.Random(seed)
        limit, within = chance.randint(0, 4), 10.0
        machine = RestartMachine(STRATEGIES[strategy](limit, within, Backoff(first_s=0.0)), 4)
        now, counted = 0.0, []
        while not machine.given_up and now < 500.0:
            now += chance.choice([0.0, 1.0, 4.0, 11.0])
            if machine.failed(chance.randrange(4), now, 0.0):
                counted.append(now)
            machine.start_due(now)
            machine.started()
        for first in counted:
            assert sum(first <= t <= first + within for t in counted) <= limit


def test_starts_that_fail_in_a_row_come_to_an_end_however_long_they_take() -> None:
    machine = RestartMachine(Restart.one_for_one(3, 10.0), 2)
    now = 0.0
    machine.failed(1, now, 0.0)
    for attempt in range(3):
        assert not machine.given_up, attempt
        now += 100.0
        assert machine.start_due(now) == [1]
        now += 100.0
        machine.start_failed(now, 0.0)
    assert machine.given_up and machine.start_due(now + 1000.0) == []


def test_waits_grow_up_to_the_cap_and_chance_only_shortens_them() -> None:
    backoff = Backoff(first_s=0.5, factor=3.0, max_s=4.0, jitter=0.25)
    assert [backoff.delay_s(n, 0.0) for n in range(4)] == [0.5, 1.5, 4.0, 4.0]
    assert [backoff.delay_s(n, 1.0) for n in range(4)] == [0.375, 1.125, 3.0, 3.0]
    assert Backoff(factor=10.0).delay_s(10**9, 0.0) == 10.0


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_restarts": -1},
        {"max_restarts": 1.5},
        {"max_restarts": True},
        {"within_s": -1},
        {"within_s": float("nan")},
        {"within_s": "60"},
        {"backoff": 3},
        {"on_restart": "f"},
    ],
)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_policy_that_makes_no_sense_is_refused_where_it_is_made(
    strategy: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises((ValueError, TypeError), match=next(iter(arguments))):
        STRATEGIES[strategy](**arguments)


@pytest.mark.parametrize("field", ["first_s", "factor", "max_s", "jitter"])
def test_a_backoff_that_makes_no_sense_is_refused(field: str) -> None:
    for value in (-1, float("nan"), "1", 1e9):
        with pytest.raises(ValueError, match=field):
            Backoff(**{field: value})  # type: ignore[arg-type]

"""Merging of lines that are alike: pure code, against a plain computation of the edit distance."""

from __future__ import annotations

import random

import pytest
from monarch._actor.line_groups import ALIKE_BELOW, LineGroups, alike


def plain_distance(one: str, other: str) -> int:
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        last, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            last, row[j] = row[j], min(last + (a != b), row[j] + 1, row[j - 1] + 1)
    return row[-1]


def mutated(chance: random.Random, text: str) -> str:
    letters = list(text)
    for _ in range(chance.randrange(8)):
        at = chance.randrange(len(letters) + 1)
        edit = chance.choice("ids")
        if edit == "i":
            letters.insert(at, chance.choice("abc"))
        elif letters:
            at = min(at, len(letters) - 1)
            if edit == "d":
                del letters[at]
            else:
                letters[at] = chance.choice("abc")
    return "".join(letters)


def test_alike_is_an_edit_distance_below_the_limit() -> None:
    chance = random.Random(7)
    seen = {True: 0, False: 0}
    for _ in range(3000):
        one = "".join(chance.choice("abc") for _ in range(chance.randrange(1, 60)))
        other = mutated(chance, one)
        wanted = plain_distance(one, other) < ALIKE_BELOW * max(len(one), len(other))
        assert alike(one, other) == alike(other, one) == (wanted or one == other), (one, other)
        seen[wanted] += 1
    assert min(seen.values()) > 300


def test_lines_as_long_as_are_compared() -> None:
    chance = random.Random(11)
    seen = {True: 0, False: 0}
    for edits in range(40, 120, 4):
        one = "".join(chance.choice("ab") for _ in range(512))
        letters = list(one)
        for at in chance.sample(range(512), edits):
            letters[at] = "a" if letters[at] == "b" else "b"
        del letters[chance.randrange(400) :][:3]
        other = "".join(letters)
        wanted = plain_distance(one, other) < ALIKE_BELOW * 512
        assert alike(one, other) == alike(other, one) == wanted, edits
        seen[wanted] += 1
    assert min(seen.values()) > 2


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        ("", "", True),
        ("", "a", False),
        ("a", "b", False),
        ("x" * 20, "x" * 18 + "yz", True),  # 2 of 20: 0.10
        ("x" * 20, "x" * 17 + "abc", False),  # 3 of 20: 0.15 exactly
        ("x" * 1000, "x" * 1000 + "y" * 1000, True),  # alike as far as they are compared
    ],
)
def test_the_limit_itself(one: str, other: str, wanted: bool) -> None:
    assert alike(one, other) == alike(other, one) == wanted


def test_equal_lines_are_one_group_and_counts_add_up() -> None:
    groups = LineGroups()
    for rank in (0, 1, 0, 2):
        groups.add(rank, "same")
    assert groups.take() == [(4, "same")]
    assert groups.take() == []


def test_alike_lines_of_different_ranks_are_merged_under_the_first() -> None:
    groups = LineGroups()
    for rank in range(8):
        groups.add(rank, f"step 12 of the training took a while on rank {rank}")
    assert groups.take() == [(8, "step 12 of the training took a while on rank 0")]


def test_different_lines_of_one_rank_are_never_merged() -> None:
    groups = LineGroups()
    for step in range(40):
        for rank in range(3):
            groups.add(rank, f"step {step} of the training took a while on rank {rank}")
    assert groups.take() == [(3, f"step {step} of the training took a while on rank 0") for step in range(40)]


def test_a_line_that_another_ranks_group_has_taken_is_not_merged_with_its_own_ranks() -> None:
    groups = LineGroups()
    groups.add(0, "the loss of this step is 0.51")
    groups.add(1, "the loss of this step is 0.52")
    groups.add(0, "the loss of this step is 0.52")
    assert groups.take() == [(2, "the loss of this step is 0.51"), (1, "the loss of this step is 0.52")]


def test_groups_keep_the_order_of_their_first_lines() -> None:
    groups = LineGroups()
    for rank, text in [(0, "first"), (0, "second"), (1, "second"), (1, "first"), (1, "third")]:
        groups.add(rank, text)
    assert groups.take() == [(2, "first"), (2, "second"), (1, "third")]

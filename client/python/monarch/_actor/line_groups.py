"""Lines of many ranks that say nearly the same, as one line with a count. Pure: no clock, no output."""

from __future__ import annotations

from collections import Counter, deque

# Two lines are alike if turning one into the other takes fewer edits than this part of the longer one's length.
ALIKE_BELOW = 0.15
# A longer line is compared by its beginning.
_COMPARED_CHARS_MAX = 512
# A new line is compared with as many of the latest groups: ranks in step say the same within few lines.
_COMPARED_GROUPS_MAX = 32


class LineGroups:
    """Collects lines until they are taken. Not thread-safe.

    Equal lines are one group, whoever wrote them. Lines that differ are merged only if they are alike and of different
    ranks: what one rank says twice in different words stays apart.
    """

    def __init__(self) -> None:
        self._groups: list[_Group] = []
        self._by_text: dict[str, _Group] = {}
        self._latest: deque[_Group] = deque(maxlen=_COMPARED_GROUPS_MAX)

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, rank: int, text: str) -> None:
        group = self._by_text.get(text)
        if group is None or group.texts.get(rank, text) != text:
            group = self._find_alike(rank, text)
        if group is None:
            group = _Group(text)
            self._groups.append(group)
            self._latest.append(group)
        self._by_text[text] = group
        group.texts[rank] = text
        group.count += 1

    def _find_alike(self, rank: int, text: str) -> _Group | None:
        for group in reversed(self._latest):
            if rank not in group.texts and alike(group.first, text):
                return group
        return None

    def take(self) -> list[tuple[int, str]]:
        """Number and first line of each group, in the order of those lines; nothing is left."""
        taken = [(group.count, group.first) for group in self._groups]
        self._groups, self._by_text = [], {}
        self._latest.clear()
        return taken


class _Group:
    __slots__ = ("count", "first", "texts")

    def __init__(self, first: str) -> None:
        self.first = first
        self.count = 0
        self.texts: dict[int, str] = {}  # by rank


def alike(one: str, other: str) -> bool:
    """Whether the edit distance is below ALIKE_BELOW of the longer one's length."""
    one, other = one[:_COMPARED_CHARS_MAX], other[:_COMPARED_CHARS_MAX]
    longer = max(len(one), len(other))
    # The most edits that are few enough.
    limit = -int(-ALIKE_BELOW * longer // 1) - 1 if longer else 0
    if one == other:
        return True
    if abs(len(one) - len(other)) > limit:
        return False
    one, other = _without_common_ends(one, other)
    if max(len(one), len(other)) <= limit:
        return True
    # Each edit changes one letter at most on each side.
    left = Counter(one)
    left.subtract(other)
    if max(sum(n for n in left.values() if n > 0), -sum(n for n in left.values() if n < 0)) > limit:
        return False
    return _distance_within(one, other, limit)


def _without_common_ends(one: str, other: str) -> tuple[str, str]:
    shorter = min(len(one), len(other))
    begin = 0
    while begin < shorter and one[begin] == other[begin]:
        begin += 1
    end = 0
    while end < shorter - begin and one[-1 - end] == other[-1 - end]:
        end += 1
    return one[begin : len(one) - end], other[begin : len(other) - end]


def _distance_within(one: str, other: str, limit: int) -> bool:
    """Whether at most `limit` insertions, deletions and substitutions turn one into the other."""
    far = limit + 1
    before = [min(column, far) for column in range(len(other) + 1)]
    for row, letter in enumerate(one, 1):
        now = [far] * (len(other) + 1)
        if row <= limit:
            now[0] = row
        for column in range(max(1, row - limit), min(len(other), row + limit) + 1):
            now[column] = min(
                before[column - 1] + (letter != other[column - 1]),
                before[column] + 1,
                now[column - 1] + 1,
                far,
            )
        if min(now) > limit:
            return False
        before = now
    return before[-1] <= limit

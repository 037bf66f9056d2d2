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
    """Whether at most `limit` insertions, deletions and substitutions turn one into the other.

    A column of the table of distances is kept as the differences of neighbours, a bit for each place of `one`: a step is
    a few operations on whole columns (Myers 1999, Hyyrö 2003).
    """
    if not one or not other:
        return max(len(one), len(other)) <= limit
    places: dict[str, int] = {}
    for place, letter in enumerate(one):
        places[letter] = places.get(letter, 0) | 1 << place
    column = (1 << len(one)) - 1
    last = 1 << (len(one) - 1)
    up, down = column, 0  # where the distance grows, or shrinks, from one place to the next
    distance = len(one)
    for left, letter in zip(range(len(other) - 1, -1, -1), other, strict=True):
        equal = places.get(letter, 0)
        stays = (((equal & up) + up) ^ up) | equal
        right_up = down | (column & ~(stays | up))
        right_down = up & stays
        distance += bool(right_up & last) - bool(right_down & last)
        # The rest can take back one for each letter.
        if distance - left > limit:
            return False
        right_up = right_up << 1 | 1
        equal |= down
        up = column & (right_down << 1 | ~(equal | right_up))
        down = column & right_up & equal
    return distance <= limit

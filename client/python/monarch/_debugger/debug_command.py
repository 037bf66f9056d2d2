"""What an operator can type at the debugger's own prompt."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from monarch._debugger.debug_io import DebugIO

Ranks = int | range | list[int]
# By number, or by dimension.
RanksType = Ranks | dict[str, Ranks]

HELP = """\
attach ACTOR RANK           talk to the debugger of one rank; 'detach' there comes back here
list                        what waits at a breakpoint
cast ACTOR ranks(...) TEXT  send a command of pdb to several ranks: ranks(3), ranks(1,4,6), ranks(0:8:2),
                            ranks(hosts=0, gpus=(1,3)), ranks(gpus=2:)
continue                    clear all breakpoints and let everything go on
quit                        leave; whatever waits at a breakpoint goes on waiting
help                        this text
Short forms: a, l, c, q, h.
"""

_RANGE = r"\d*\s*:\s*\d*(?:\s*:\s*\d*)?"
_LIST = r"\d+(?:\s*,\s*\d+)+"
_DIMENSION = rf"[A-Za-z_]\w*\s*=\s*(?:\(\s*{_LIST}\s*\)|{_RANGE}|\d+)"
_DIMENSIONS = rf"{_DIMENSION}(?:\s*,\s*{_DIMENSION})*"
_CAST = re.compile(
    rf"cast\s+(\S+)\s+ranks\(\s*({_DIMENSIONS}|{_RANGE}|{_LIST}|\d+)\s*\)\s*([\w!].*)", re.ASCII
)
_ATTACH = re.compile(r"(?:a|attach)\s+(\S+)\s+(\d+)", re.ASCII)


class DebugCommand:
    @staticmethod
    async def parse(debug_io: DebugIO, line: str) -> DebugCommand | None:
        """The command; None, after telling the operator, if it is none."""
        try:
            return parse_command(line)
        except ValueError as error:
            await debug_io.output(f"{error}\n")
            return None


@dataclass
class Attach(DebugCommand):
    actor_name: str
    rank: int


@dataclass
class ListCommand(DebugCommand):
    pass


@dataclass
class Quit(DebugCommand):
    pass


@dataclass
class Help(DebugCommand):
    pass


@dataclass
class Continue(DebugCommand):
    pass


@dataclass
class Cast(DebugCommand):
    actor_name: str
    ranks: RanksType
    command: str


_PLAIN: dict[str, type[DebugCommand]] = {
    name: kind
    for kind, names in ((ListCommand, "l list"), (Quit, "q quit"), (Help, "h help"), (Continue, "c continue"))
    for name in names.split()
}


def parse_command(line: str) -> DebugCommand:
    """ValueError if it is none."""
    line = line.strip()
    if line in _PLAIN:
        return _PLAIN[line]()
    found = _ATTACH.fullmatch(line)
    if found:
        return Attach(found[1], int(found[2]))
    found = _CAST.fullmatch(line)
    if found:
        return Cast(found[1], _parse_ranks(found[2]), found[3])
    raise ValueError(f"not a command: {line!r}. 'help' lists them")


def _parse_ranks(text: str) -> RanksType:
    if "=" not in text:
        return _parse_numbers(text)
    pairs = (dimension.split("=") for dimension in re.findall(_DIMENSION, text))
    return {name.strip(): _parse_numbers(numbers.strip().strip("()")) for name, numbers in pairs}


def _parse_numbers(text: str) -> Ranks:
    if "," in text:
        return [int(number) for number in text.split(",")]
    if ":" not in text:
        return int(text)
    start, stop, step = (part.strip() for part in (text + "::").split(":")[:3])
    return range(int(start or 0), int(stop or sys.maxsize), int(step or 1))

"""Faults that meet a process from outside: those that it commits itself elsewhere in the matrix."""

from __future__ import annotations

import ctypes
import os
import platform
import signal

# Of <sys/ptrace.h> and <sys/user.h> on x86-64.
_PEEKTEXT, _POKETEXT, _GETREGS, _SETREGS, _ATTACH, _DETACH = 1, 4, 12, 13, 16, 17
_REGISTERS = 27  # words
_RAX, _RDI, _ORIG_RAX, _RIP = 10, 14, 15, 16
_SYSCALL = 0x050F
_EXIT_GROUP = 231

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


def can_exit() -> bool:
    return platform.machine() == "x86_64"


def _ptrace(request: int, pid: int, address: int = 0, data: int | None = None) -> int:
    ctypes.set_errno(0)
    result = int(_libc.ptrace(request, pid, address, data))
    if result == -1 and ctypes.get_errno() != 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request} of {pid}: {os.strerror(ctypes.get_errno())}")
    return result


def make_exit(pid: int, status: int) -> None:
    """The process calls exit_group() wherever it is, as a program that ends by itself does."""
    _ptrace(_ATTACH, pid)
    assert os.WIFSTOPPED(os.waitpid(pid, getattr(os, "__WALL", 0x40000000))[1])
    registers = (ctypes.c_ulong * _REGISTERS)()
    _ptrace(_GETREGS, pid, 0, ctypes.addressof(registers))
    at = registers[_RIP]
    _ptrace(_POKETEXT, pid, at, _ptrace(_PEEKTEXT, pid, at) & ~0xFFFF | _SYSCALL)
    registers[_RAX], registers[_RDI] = _EXIT_GROUP, status
    # Else the kernel would restart an interrupted call first.
    registers[_ORIG_RAX] = ctypes.c_ulong(-1).value
    _ptrace(_SETREGS, pid, 0, ctypes.addressof(registers))
    _ptrace(_DETACH, pid)


def commit_from_outside(pid: int, fault: str) -> None:
    if fault.startswith("exit "):
        make_exit(pid, int(fault.split()[1]))
    else:
        os.kill(pid, getattr(signal, fault))

"""`__supervise__` and `__cleanup__`, which may be sync or async in any class."""

from __future__ import annotations

from typing import Any


class CleanupOverLimit(Exception):
    """`__cleanup__` did not end within its time: the actor ends without it, as it would have ended."""


def complete(result: Any) -> Any:
    """What a hook returned; a coroutine is run to its end first, on a loop of its own."""
    if not hasattr(result, "__await__"):
        return result
    import asyncio

    async def wait() -> Any:
        return await result

    return asyncio.run(wait())

"""For the client of a test over several hosts: spawns that say on which host each rank starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from live_actors import Victim
from monarch._actor.process import process
from monarch.actor import this_host

_WAIT_S = 30


class _Spread:
    def __init__(self, control: Any, hosts: Sequence[bytes]) -> None:
        self._control = control
        self._hosts = hosts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._control, name)

    def spawn_procs(
        self, mesh: str, labels: Any, sizes: Any, specs: Any, owner: Any, phase_ms: int, hosts: Any = ()
    ) -> Any:
        for spec in specs:
            spec["inherit_env"] = True
        return self._control.spawn_procs(mesh, labels, sizes, specs, owner, phase_ms, hosts=self._hosts)


def attach(*addresses: str) -> list[bytes]:
    control = process().control()
    return [control.attach_host(address, _WAIT_S * 1000)["host"] for address in addresses]


def spread_procs(hosts: Sequence[bytes]) -> Any:
    here = process()
    plain = here.control
    spread: Any = _Spread(plain(), hosts)
    here.control = lambda: spread  # type: ignore[method-assign]
    try:
        procs = this_host().spawn_procs({"gpus": len(hosts)}, name="procs")
        procs.initialized.get(timeout=_WAIT_S)
        return procs
    finally:
        here.control = plain  # type: ignore[method-assign]


def spread_victims(hosts: Sequence[bytes]) -> tuple[Any, Any]:
    procs = spread_procs(hosts)
    victims = procs.spawn("victims", Victim)
    victims.ping.call().get(timeout=_WAIT_S)
    return procs, victims


def echo_sizes(victims: Any, rank: int, sizes: Sequence[int]) -> list[int]:
    """Sends so many bytes there and back."""
    one = victims.slice(gpus=rank)
    return [len(one.echo.call_one(b"x" * size).get(timeout=_WAIT_S)) for size in sizes]

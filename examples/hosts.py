"""Two hosts that are joined by address: each runs a worker loop, here as two programs on this machine.

python examples/hosts.py
"""

import subprocess
import sys
import tempfile

from monarch.actor import (
    Actor,
    Channel,
    HostMesh,
    Port,
    attach_to_workers,
    context,
    current_rank,
    current_size,
    endpoint,
)

# What runs on each host, once; it ends when a client shuts the host down.
WORKER = """
import sys
from monarch.actor import run_worker_loop_forever
run_worker_loop_forever(address=sys.argv[1], ca="trust_all_connections")
"""


class Member(Actor):
    """Adds up what all members have: each sends its part to a port of the first one."""

    @endpoint
    def open_sum(self) -> Port[int]:
        port, self.parts = Channel[int].open()
        return port

    @endpoint
    def send_part(self, to: Port[int]) -> str:
        to.send(1)
        rank = current_rank()
        return f"host {rank['hosts']}, processor {rank['cpus']}"

    @endpoint
    def sum(self, members: int) -> int:
        assert len(context().message_rank) == 0  # called alone, whatever its rank among all
        return sum(self.parts.recv().get() for _ in range(members))

    @endpoint
    def world(self) -> dict[str, int]:
        return current_size()


def use(hosts: HostMesh) -> None:
    procs = hosts.spawn_procs({"cpus": 2})
    members = procs.spawn("members", Member)
    print(f"sizes {members.world.call().get().get(0)}")

    first = members.slice(hosts=0, cpus=0)
    port = first.open_sum.call_one().get()
    for where in members.send_part.call(port).get().values():
        print(f"a part came from {where}")
    print(f"the world has {first.sum.call_one(len(members)).get()} members")
    hosts.shutdown().get()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        # Between machines an address is tcp://HOST:PORT.
        addresses = [f"ipc://{folder}/host{i}" for i in range(2)]
        workers = [
            # Its stderr is the log of the host's daemon.
            subprocess.Popen([sys.executable, "-c", WORKER, address], stderr=subprocess.DEVNULL)
            for address in addresses
        ]
        try:
            use(attach_to_workers(workers=addresses, ca="trust_all_connections"))
        except BaseException:
            for worker in workers:
                worker.terminate()
            raise
        print(f"worker loops ended with {[worker.wait() for worker in workers]}")


if __name__ == "__main__":
    main()

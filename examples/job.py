"""A job of several hosts: a parameter server on one, workers on the others, and a host that fails.

python examples/job.py
"""

import os
import signal

from monarch.actor import Actor, HostMesh, MeshFailure, SupervisionError, current_rank, endpoint, this_proc
from monarch.job import ProcessJob


class Server(Actor):
    """Keeps the parameters: a sum of all that the workers found."""

    def __init__(self, size: int) -> None:
        self.parameters = [0.0] * size

    @endpoint
    def pull(self) -> list[float]:
        return self.parameters

    @endpoint
    def push(self, gradient: list[float]) -> None:
        self.parameters = [p + g for p, g in zip(self.parameters, gradient, strict=True)]


class Worker(Actor):
    def __init__(self, server: Server) -> None:
        self.server = server

    @endpoint
    def step(self) -> float:
        parameters = self.server.pull.call_one().get()
        rank = current_rank().rank
        self.server.push.call_one([rank + 1.0] * len(parameters)).get()
        return sum(parameters)

    @endpoint
    def pid(self) -> int:
        return os.getpid()


class Trainer(Actor):
    """Owns the workers, and goes on without those that die."""

    def __init__(self) -> None:
        self.lost: list[int] = []

    @endpoint
    def train(self, hosts: HostMesh, server: Server) -> str:
        self.workers = hosts.spawn_procs({"cpus": 1}).spawn("workers", Worker, server)
        for _ in range(3):
            self.workers.step.call().get()
        os.kill(self.workers.slice(hosts=1).pid.call_one().get(), signal.SIGKILL)
        try:
            self.workers.step.call().get()
        except SupervisionError as error:
            # The first line says who it was; below is why.
            print(f"a step failed: ... {str(error).splitlines()[1].strip()[:60]} ...")
        self.workers.slice(hosts=0).step.call().get()
        return "trained"

    @endpoint
    def lost_ranks(self) -> list[int]:
        return self.lost

    def __supervise__(self, failure: MeshFailure) -> bool:
        self.lost += failure.crashed_ranks
        return True


def main() -> None:
    # Hosts as processes of this machine; other jobs start them elsewhere, and the rest of the program is the same.
    job = ProcessJob({"servers": 1, "workers": 2})
    try:
        hosts = job.state(cached_path=None)
        server = hosts.servers.spawn_procs().spawn("server", Server, 4)
        trainer = this_proc().spawn("trainer", Trainer)
        print(trainer.train.call_one(hosts.workers, server.slice(hosts=0)).get())
        print(f"lost ranks: {trainer.lost_ranks.call_one().get()}")
        print(f"parameters: {server.pull.call_one().get()}")
        # In good order; a host that goes while something is on it is a failure.
        hosts.servers.shutdown().get()
        hosts.workers.shutdown().get()
    finally:
        job.kill()


if __name__ == "__main__":
    main()

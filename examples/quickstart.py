"""A first program: eight processes with an actor in each, what can be asked of them, and what happens when one dies.

python examples/quickstart.py
"""

import os
import signal
import time

import monarch.actor
from monarch.actor import Actor, ActorError, MeshFailure, SupervisionError, current_rank, endpoint, this_host


class Trainer(Actor):
    """Lives in a process of its own. Its endpoints are what others may call."""

    def __init__(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.gpu = current_rank()["gpus"]
        self.steps = 0

    @endpoint
    def train(self, step: int) -> float:
        if step < 0:
            raise ValueError(f"there is no step {step}")
        self.steps += 1
        return self.learning_rate * (step + self.gpu)

    @endpoint
    def set_learning_rate(self, value: float) -> None:
        self.learning_rate = value

    @endpoint
    def status(self) -> tuple[int, int, float]:
        return os.getpid(), self.steps, self.learning_rate


def report_failure(failure: MeshFailure) -> None:
    """What nobody else handles comes here. Returning lets the program go on; without it, it would end."""
    print(f"  supervision: rank {failure.crashed_ranks[0]} of {failure.mesh_name!r} failed")


def main() -> None:
    monarch.actor.unhandled_fault_hook = report_failure

    started = time.perf_counter()
    procs = this_host().spawn_procs({"gpus": 8})
    trainers = procs.spawn("trainers", Trainer, learning_rate=0.5)
    print(f"call: {trainers.train.call(step=1).get().values()}")
    print(f"  eight processes and a call to each took {time.perf_counter() - started:.2f} s")

    first_two = trainers.slice(gpus=slice(0, 2))
    print(f"slice: {first_two.train.call(step=10).get()}")

    trainers.set_learning_rate.broadcast(2.0)  # no answer; what is sent afterwards arrives afterwards
    last = trainers.slice(gpus=7)
    print(f"broadcast: rank 7 answers {last.train.call_one(step=3).get()}")

    try:
        last.train.call_one(step=-1).get()
    except ActorError as error:
        print(f"an endpoint that raises: {type(error.exception).__name__}: {error.exception}")
    pid, steps, _ = last.status.call_one().get()
    print(f"  its actor lives on: process {pid} did {steps} steps")

    # A process that dies while it is called: the caller hears of it at once, and why.
    victim = trainers.slice(gpus=3)
    pid, _, _ = victim.status.call_one().get()
    os.kill(pid, signal.SIGKILL)
    killed = time.perf_counter()
    try:
        victim.train.call_one(step=1).get(timeout=10)
    except SupervisionError as error:
        took = time.perf_counter() - killed
        assert error.event is not None
        print(f"a process that is killed: {type(error).__name__} after {took * 1000:.1f} ms")
        print(f"  {error.event.summary}")

    rest = trainers.slice(gpus=slice(4, 8))
    print(f"the others go on: {rest.train.call(step=4).get().values()}")
    procs.stop().get()
    print("stopped")


if __name__ == "__main__":
    main()

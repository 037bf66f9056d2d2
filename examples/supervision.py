"""A supervisor that owns workers, hears of their deaths, and puts others in their place.

python examples/supervision.py
"""

import os
import signal

from monarch.actor import Actor, MeshFailure, SupervisionError, endpoint, this_host


class Worker(Actor):
    @endpoint
    def square(self, number: int, fatal: bool) -> int:
        if fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return number * number


class Supervisor(Actor):
    """Whoever calls spawn owns what it gets, and hears of its failures."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self._start()

    def _start(self) -> None:
        self.worker = this_host().spawn_procs({"gpus": 1}).spawn("worker", Worker)

    def __supervise__(self, failure: MeshFailure) -> bool:
        self.failures.append(f"{failure.mesh_name} failed")
        return True  # Handled. Else the supervisor would fail with its worker, and its owner would be told.

    @endpoint
    def squares(self, numbers: list[int], poison: int) -> list[int]:
        done = []
        for number in numbers:
            try:
                done.append(self.worker.square.call_one(number, number == poison).get())
            except SupervisionError:
                self._start()
                done.append(self.worker.square.call_one(number, False).get())
        return done

    @endpoint
    def report(self) -> list[str]:
        return self.failures


def main() -> None:
    procs = this_host().spawn_procs()
    supervisor = procs.spawn("supervisor", Supervisor)
    print(f"squares: {supervisor.squares.call_one([1, 2, 3, 4], poison=3).get()}")
    # __supervise__ runs between messages.
    print(f"handled meanwhile: {supervisor.report.call_one().get()}")
    # What the supervisor owns goes with it.
    procs.stop().get()
    print("stopped")


if __name__ == "__main__":
    main()

"""torchmonarch: kill -9 of a process with a call in flight, until the caller's exception:
`kill_torchmonarch.py MEBIBYTES COUNT SPREAD_S`.

It polls for deaths, so what is measured depends on when in its period the kill comes: the kills are spread over SPREAD_S.
"""

import json
import os
import signal
import sys
import threading
import time

import monarch.actor
from monarch.actor import Actor, endpoint, this_host


class Victim(Actor):
    @endpoint
    def grow(self, mebibytes: int) -> int:
        self.memory = b"\1" * (mebibytes << 20)
        return os.getpid()

    @endpoint
    def hang(self) -> None:
        threading.Event().wait()


def kill_to_error_ms(mebibytes: int, delay_s: float) -> float:
    procs = this_host().spawn_procs({"gpus": 1})
    victim = procs.spawn("victim", Victim)
    pid = victim.grow.call_one(mebibytes).get()
    call = victim.hang.call_one()
    killed = []

    def kill() -> None:
        killed.append(time.perf_counter())
        os.kill(pid, signal.SIGKILL)

    threading.Timer(delay_s, kill).start()
    try:
        call.get()
    except Exception as error:
        assert type(error).__name__ == "SupervisionError", error
        return (time.perf_counter() - killed[0]) * 1000
    raise AssertionError("the call was answered")


def main() -> None:
    monarch.actor.unhandled_fault_hook = lambda failure: None  # the deaths are wanted here
    mebibytes, count, spread_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    times = [kill_to_error_ms(mebibytes, 0.1 + spread_s * i / count) for i in range(count)]
    print(json.dumps({"ms": times}), flush=True)
    os._exit(0)  # its exit handlers wait for the dead


if __name__ == "__main__":
    main()

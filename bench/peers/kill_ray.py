"""Ray: kill -9 of an actor's process with a call in flight, until the caller's exception: `kill_ray.py MEBIBYTES COUNT`."""

import json
import os
import signal
import sys
import threading
import time

import ray


@ray.remote(num_cpus=0)
class Victim:
    def grow(self, mebibytes):
        self.memory = b"\1" * (mebibytes << 20)
        return os.getpid()

    def hang(self):
        threading.Event().wait()


def kill_to_error_ms(mebibytes):
    victim = Victim.remote()
    pid = ray.get(victim.grow.remote(mebibytes))
    call = victim.hang.remote()
    killed = []

    def kill():
        killed.append(time.perf_counter())
        os.kill(pid, signal.SIGKILL)

    threading.Timer(0.5, kill).start()
    try:
        ray.get(call)
    except ray.exceptions.RayActorError:
        return (time.perf_counter() - killed[0]) * 1000
    raise AssertionError("the call was answered")


ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
times = [kill_to_error_ms(int(sys.argv[1])) for _ in range(int(sys.argv[2]))]
ray.shutdown()
print(json.dumps({"ms": times}))

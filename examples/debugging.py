"""breakpoint() in an endpoint. Here the program plays the operator too; as a rule that is you, in another terminal.

python examples/debugging.py
"""

import os
import socket

from monarch.actor import Actor, current_rank, debug_controller, endpoint, this_host


class Worker(Actor):
    @endpoint
    def compute(self, number: int) -> int:
        result = number * current_rank().rank
        breakpoint()
        return result


def play_operator(lines: list[str]) -> str:
    """What `python -m monarch.debug HOST PORT` does with what is typed."""
    host, port = debug_controller().address.call_one().get()
    with socket.create_connection((host, port)) as connection, connection.makefile("rw") as terminal:
        for line in lines:
            terminal.write(line + "\n")
        terminal.flush()
        return terminal.read()


def main() -> None:
    # Any free port, since others may run this on the same machine. The default is 27000.
    os.environ.setdefault("MONARCH_DEBUG_SERVER_PORT", "0")
    workers = this_host().spawn_procs({"gpus": 2}).spawn("workers", Worker)
    answers = workers.compute.call(21)

    while len(debug_controller().list.call_one(print_output=False).get()) < 2:
        debug_controller().wait_pending_session.call_one().get()
    print(
        play_operator(
            [
                "list",
                "attach workers 1",
                "p result",
                "result = 42",
                "detach",
                "cast workers ranks(gpus=0) result = 41",
                "continue",
                "quit",
            ]
        )
    )
    print(f"the endpoints returned {answers.get().values()}")


if __name__ == "__main__":
    main()

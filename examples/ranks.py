"""Four small recipes: rank 0 only, a neighbour in one's own mesh, answers that come by a port, a sum over all.

python examples/ranks.py
"""

from monarch.actor import Accumulator, Actor, Channel, Port, current_rank, endpoint, this_host


class Member(Actor):
    def __init__(self) -> None:
        self.rank = current_rank()
        self.mesh: Member | None = None

    @endpoint
    def meet(self, mesh: "Member") -> None:
        """Meshes are arguments like any other: so a member gets to know its own."""
        self.mesh = mesh

    @endpoint
    def name(self) -> str:
        return f"member {self.rank.rank} at {dict(self.rank)}"

    @endpoint
    def name_of_neighbour(self) -> str:
        assert self.mesh is not None
        following = (self.rank["gpus"] + 1) % self.mesh.size("gpus")
        neighbour = self.mesh.slice(hosts=self.rank["hosts"], gpus=following)
        return neighbour.name.call_one().get()

    @endpoint
    def work_in_steps(self, steps: int, progress: Port[str]) -> None:
        for step in range(steps):
            progress.send(f"rank {self.rank.rank} did step {step}")

    @endpoint
    def one(self) -> int:
        return 1


def main() -> None:
    procs = this_host().spawn_procs({"hosts": 1, "gpus": 4})
    members = procs.spawn("members", Member)
    members.meet.call(members).get()

    first = members.slice(hosts=0, gpus=0)
    print(f"rank 0 alone: {first.name.call_one().get()}")

    # A member that waits for its neighbour takes no calls meanwhile, so not all of them may do so at once.
    last = members.slice(hosts=0, gpus=3)
    print(f"the neighbour of rank 3: {last.name_of_neighbour.call_one().get()}")

    progress, received = Channel[str].open()
    members.work_in_steps.broadcast(2, progress)
    lines = sorted(received.recv().get() for _ in range(2 * 4))
    print(f"by a port, as it happens: {len(lines)} messages, such as {lines[0]!r}")

    total = Accumulator(members.one, 0, lambda sum_so_far, answer: sum_so_far + answer).accumulate().get()
    print(f"summed up: {total} members")
    procs.stop().get()


if __name__ == "__main__":
    main()

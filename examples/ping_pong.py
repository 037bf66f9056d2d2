"""Two meshes that call each other.

python examples/ping_pong.py
"""

from monarch.actor import Actor, current_rank, endpoint, this_host


class Player(Actor):
    def __init__(self, name: str) -> None:
        self.name = f"{name} {current_rank().rank}"
        self.other: Player | None = None

    @endpoint
    def play_against(self, other: "Player") -> None:
        self.other = other

    @endpoint
    def hit(self, ball: int) -> str:
        return f"{self.name} hits {ball}"

    @endpoint
    def serve(self, balls: int) -> list[str]:
        assert self.other is not None
        return [self.other.hit.call_one(ball).get() for ball in range(balls)]


def main() -> None:
    # Both meshes live in processes of their own; an actor is called by whoever has a reference to it.
    left = this_host().spawn_procs({"gpus": 2}).spawn("left", Player, "left")
    right = this_host().spawn_procs({"gpus": 2}).spawn("right", Player, "right")
    for rank in range(2):
        pair = left.slice(gpus=rank), right.slice(gpus=rank)
        pair[0].play_against.call_one(pair[1]).get()
        pair[1].play_against.call_one(pair[0]).get()

    for point, hits in left.serve.call(3).get():
        print(f"left {point.rank} serves: {', '.join(hits)}")
    for point, hits in right.serve.call(1).get():
        print(f"right {point.rank} serves: {', '.join(hits)}")


if __name__ == "__main__":
    main()

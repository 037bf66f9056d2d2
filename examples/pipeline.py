"""Stages wired to each other by ports: generators send what they make straight to the trainer, past the main program.

python examples/pipeline.py
"""

import random

from monarch.actor import Actor, Channel, Port, current_rank, endpoint, this_host


class Generator(Actor):
    """Makes samples with the newest weights that have arrived; never waits for the trainer."""

    def __init__(self) -> None:
        self.rank = current_rank().rank
        self.weight = 0.0
        self.random = random.Random(self.rank)

    @endpoint
    def set_weight(self, weight: float) -> None:
        self.weight = weight

    @endpoint
    def generate(self, count: int, samples: Port[tuple[int, float]]) -> None:
        for _ in range(count):
            samples.send((self.rank, self.weight + self.random.uniform(-1, 1)))


class Trainer(Actor):
    """Moves its weight towards a goal by the samples that come nearest to it."""

    def __init__(self, goal: float) -> None:
        self.goal = goal
        self.weight = 0.0
        self.inbox, self.samples = Channel[tuple[int, float]].open()

    @endpoint
    async def port(self) -> Port[tuple[int, float]]:
        return self.inbox

    @endpoint
    async def step(self, batch: int) -> tuple[float, int]:
        """Takes `batch` samples, whoever they are from; returns the new weight and how many generators took part."""
        taken = [await self.samples.recv() for _ in range(batch)]
        best = min((value for _, value in taken), key=lambda value: abs(value - self.goal))
        self.weight += 0.5 * (best - self.weight)
        return self.weight, len({rank for rank, _ in taken})


def main() -> None:
    trainer = this_host().spawn_procs().spawn("trainer", Trainer, 3.0)
    generators = this_host().spawn_procs({"gpus": 3}).spawn("generators", Generator)
    samples = trainer.port.call_one().get()

    weight = 0.0
    for step in range(12):
        # Without waiting: what the trainer needs comes by the port.
        generators.set_weight.broadcast(weight)
        generators.generate.broadcast(8, samples)
        weight, sources = trainer.step.call_one(24).get()
        if step % 4 == 3:
            print(f"step {step}: weight {weight:.2f}, from samples of {sources} generators")
    assert abs(weight - 3.0) < 0.5, weight
    print("the weight is near its goal, 3.0")


if __name__ == "__main__":
    main()

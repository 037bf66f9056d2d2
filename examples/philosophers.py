"""Dining philosophers: many actors that want what only two at a time can have, and one that hands it out.

python examples/philosophers.py
"""

import asyncio

from monarch.actor import Actor, concurrent_endpoint, current_rank, endpoint, this_host

SEATS = 5


class Table(Actor):
    """Forks. Requests overlap, so that one that waits does not keep the others from being heard."""

    def __init__(self) -> None:
        self.free = [True] * SEATS
        self.changed = asyncio.Condition()

    @concurrent_endpoint
    async def take(self, seat: int) -> None:
        pair = seat, (seat + 1) % SEATS
        async with self.changed:
            # Both or none: who never holds one fork while waiting for the other cannot be part of a deadlock.
            await self.changed.wait_for(lambda: all(self.free[fork] for fork in pair))
            for fork in pair:
                self.free[fork] = False

    @concurrent_endpoint
    async def put_back(self, seat: int) -> None:
        async with self.changed:
            for fork in (seat, (seat + 1) % SEATS):
                self.free[fork] = True
            self.changed.notify_all()


class Philosopher(Actor):
    @endpoint
    async def dine(self, table: Table, courses: int) -> int:
        seat = current_rank().rank
        for _ in range(courses):
            await table.take.call_one(seat)
            await asyncio.sleep(0.005)  # eats
            await table.put_back.call_one(seat)
        return courses


def main() -> None:
    table = this_host().spawn_procs().spawn("table", Table)
    philosophers = this_host().spawn_procs({"seats": SEATS}).spawn("philosophers", Philosopher)
    eaten = philosophers.dine.call(table, 10).get(timeout=60)
    for point, courses in eaten:
        print(f"philosopher {point.rank} had {courses} courses")


if __name__ == "__main__":
    main()

"""A toy crawler: one actor hands out work and keeps the ports of those who wait for it, many do the work.

python examples/crawler.py
"""

import asyncio
from collections import deque

from monarch.actor import Actor, Port, endpoint, this_host

# Page: its links. Nothing is fetched from anywhere.
SITE = {
    "/": ["/news", "/people", "/code"],
    "/news": ["/", "/news/today", "/news/yesterday"],
    "/news/today": ["/people/ada"],
    "/news/yesterday": ["/people/alan", "/lost"],
    "/people": ["/people/ada", "/people/alan"],
    "/people/ada": ["/code"],
    "/people/alan": ["/code", "/"],
    "/code": [],
}


class Frontier(Actor):
    """Pages to visit. Whoever asks when there are none is answered later: by the port that came with the question."""

    def __init__(self, start: str, crawlers: int) -> None:
        self.seen = {start}
        self.pages = deque([start])
        self.waiting: list[Port[str | None]] = []
        self.crawlers = crawlers

    @endpoint(explicit_response_port=True)
    def next_page(self, port: Port[str | None]) -> None:
        self.waiting.append(port)
        self._hand_out()

    @endpoint
    def found(self, links: list[str]) -> None:
        new = [link for link in links if link not in self.seen]
        self.seen.update(new)
        self.pages.extend(new)
        self._hand_out()

    def _hand_out(self) -> None:
        while self.pages and self.waiting:
            self.waiting.pop(0).send(self.pages.popleft())
        if len(self.waiting) == self.crawlers:
            # Everybody waits, so nobody will find anything more.
            for port in self.waiting:
                port.send(None)
            self.waiting.clear()


class Crawler(Actor):
    @endpoint
    async def crawl(self, frontier: Frontier) -> list[str]:
        visited = []
        while (page := await frontier.next_page.call_one()) is not None:
            await asyncio.sleep(0.01)  # as if it came over a network
            visited.append(page)
            await frontier.found.call_one(SITE.get(page, []))
        return visited


def main() -> None:
    crawlers = 3
    frontier = this_host().spawn_procs().spawn("frontier", Frontier, "/", crawlers)
    workers = this_host().spawn_procs({"gpus": crawlers}).spawn("crawlers", Crawler)
    visited = workers.crawl.call(frontier).get()
    for point, pages in visited:
        print(f"crawler {point.rank} visited {len(pages)} pages")
    everything = sorted(page for pages in visited.values() for page in pages)
    assert everything == sorted([*SITE, "/lost"]), everything
    print(f"each page once: {' '.join(everything)}")


if __name__ == "__main__":
    main()

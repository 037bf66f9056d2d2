"""`monarchctl events` on real daemons."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from live import BIN, EVENT_S, Live


def events_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line)["event"] for line in text.splitlines()]


def events(live: Live, *arguments: str) -> str:
    return live.ctl("events", "--address", live.private_address(), *arguments).stdout


def follow(live: Live, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(BIN / "monarchctl"), "events", "--follow", "--address", live.private_address(), *arguments],
        env=live.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_events_kept_and_to_come(live: Live) -> None:
    client = live.client()
    client.start_victims(2)
    pids = client.ask("procs.pids()")
    ready = [e for e in events_of(events(live, "--json")) if e["what"] == "proc_ready"]
    assert len(ready) >= 2

    follower = follow(live, "--json")
    assert follower.stdout
    try:
        assert json.loads(follower.stdout.readline())["event"] == events_of(events(live, "--json"))[0]
        client.ask(f"__import__('os').kill({pids[1]}, 9)")
        for line in follower.stdout:
            event = json.loads(line)["event"]
            if event["what"] == "proc_ended":
                break
        assert (int(event["failure"]["pid"]), event["failure"]["code"]) == (pids[1], 9)
        # The private daemon goes with its client, and so does who follows it.
        assert client.finish() == 0
        _, error = follower.communicate(timeout=EVENT_S)
    finally:
        follower.kill()
        follower.wait()
    assert follower.returncode == 0, error


def test_what_is_too_old_is_left_out(live: Live) -> None:
    client = live.client()
    client.start_victims(1)
    assert "proc_ready" in events(live, "--since", "1h")
    assert events(live, "--since", "0s") == ""
    address = live.private_address()
    assert client.finish() == 0
    done = live.ctl("events", "--address", address, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert "not reachable" in done.stderr

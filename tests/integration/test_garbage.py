"""Bytes that are no protocol, on both sockets of a running daemon: its sender is cut off, and nobody else notices."""

from __future__ import annotations

import os
import pathlib
import random
import select
import socket
from collections.abc import Iterator

import pytest
from live import EVENT_S, FULL, Client, Daemon, Live


@pytest.fixture
def daemon(live: Live) -> Daemon:
    return live.daemon()


@pytest.fixture
def client(live: Live, daemon: Daemon) -> Iterator[Client]:
    """Has a mesh that works all the while."""
    client = live.client(address=daemon.address)
    client.start_victims(2)
    client.ask("import threading\nstop, working = threading.Event(), victims")
    client.ask(
        "def work():\n"
        "    done = 0\n"
        "    while not stop.is_set():\n"
        "        assert working.ping.call().get(timeout=10).values() == [0, 1]\n"
        "        done += 1\n"
        "    return done"
    )
    working = client.begin("work()")
    yield client
    client.ask("stop.set()")
    assert client.result(working) > 0
    assert client.ask("failures_so_far()") == []
    assert len(client.start_victims(2)) == 2
    assert client.finish() == 0


def connect(daemon: Daemon, name: str) -> socket.socket:
    kind = socket.SOCK_SEQPACKET if name == "native.sock" else socket.SOCK_STREAM
    connection = socket.socket(socket.AF_UNIX, kind)
    connection.connect(str(daemon.directory / name))
    return connection


def assert_closed(connection: socket.socket) -> None:
    """Reads what is answered, to its end."""
    while True:
        assert select.select([connection], [], [], EVENT_S)[0], "the connection stays open"
        try:
            if not connection.recv(1 << 16):
                return
        except ConnectionResetError:
            return


def packets(rng: random.Random) -> Iterator[bytes]:
    yield b"\0"
    yield b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    yield b"\xff" * 65536
    for size in (1, 7, 16, 63, 64, 65, 200, 4096, 60000):
        yield rng.randbytes(size)


def log_lines(daemon: Daemon, text: str) -> int:
    return pathlib.Path(daemon.log).read_text(encoding="utf-8", errors="replace").count(text)


def test_on_the_native_socket(live: Live, daemon: Daemon, client: Client) -> None:
    rng = random.Random(20)
    count = 0
    for _ in range(20 if FULL else 2):
        for data in packets(rng):
            with connect(daemon, "native.sock") as connection:
                connection.send(data)
                assert_closed(connection)
            count += 1
    live.ctl("status", "--address", daemon.address)  # The last line is written by the time it answers.
    assert log_lines(daemon, "connection closed before its hello was accepted") == count


def test_fds_with_it(daemon: Daemon, client: Client) -> None:
    before = len(os.listdir(f"/proc/{daemon.pid}/fd"))
    read, write = os.pipe()
    for _ in range(20):
        with connect(daemon, "native.sock") as connection:
            socket.send_fds(connection, [b"no hello"], [write] * 10)
            assert_closed(connection)
    os.close(write)
    # The daemon has kept none of them: all ends of the pipe are closed.
    assert select.select([read], [], [], EVENT_S)[0] and os.read(read, 1) == b""
    os.close(read)
    assert len(os.listdir(f"/proc/{daemon.pid}/fd")) <= before + 1


def test_many_that_say_nothing(daemon: Daemon, client: Client) -> None:
    """They cost a connection each, until they go; those who do speak are served meanwhile."""
    before = len(os.listdir(f"/proc/{daemon.pid}/fd"))
    silent = [connect(daemon, name) for _ in range(100) for name in ("native.sock", "grpc.sock")]
    assert len(client.start_victims(1)) == 1
    for connection in silent:
        connection.close()
    for data in (b"x", b"y"):
        with connect(daemon, "native.sock") as connection:
            connection.send(data)
            assert_closed(connection)
    assert len(os.listdir(f"/proc/{daemon.pid}/fd")) <= before + 110


def test_on_the_grpc_socket(daemon: Daemon, client: Client) -> None:
    rng = random.Random(21)
    for data in packets(rng):
        with connect(daemon, "grpc.sock") as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + data if len(data) % 2 else data)
            connection.shutdown(socket.SHUT_WR)
            assert_closed(connection)


def test_hello_of_another_version(daemon: Daemon, client: Client) -> None:
    """Refused in words, when it is a message at all."""
    with connect(daemon, "native.sock") as connection:
        connection.send(b"\x63" + b"\0" * 31)
        assert_closed(connection)
    assert daemon.process.poll() is None

"""The operator's end of the debugger: `python -m monarch.debug [HOST] [PORT]`."""

from __future__ import annotations

import argparse
import os
import select
import socket
import sys

from monarch._debugger.address import HOST_VARIABLE, PORT_VARIABLE, server_host, server_port


def main(arguments: list[str] | None = None) -> int:
    """Passes lines to the debugger, and what it prints back, until either side ends. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m monarch.debug",
        description="Talks to the debugger of a running program: to what waits at breakpoint() in its actors.",
        epilog=f"Without HOST and PORT: {HOST_VARIABLE} and {PORT_VARIABLE}, else 127.0.0.1 27000.",
    )
    parser.add_argument("host", nargs="?", default=server_host())
    parser.add_argument("port", nargs="?", type=int, default=server_port())
    parser.add_argument("--host", dest="host", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    parser.add_argument("--port", dest="port", type=int, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        connection = socket.create_connection((options.host, options.port), timeout=5)
    except OSError as error:
        print(
            f"No debugger listens at {options.host}:{options.port}: {error}. It does so from the first breakpoint() on, "
            "and the program prints where.",
            file=sys.stderr,
        )
        return 1
    connection.settimeout(None)
    with connection:
        try:
            return _pump(connection)
        except KeyboardInterrupt:
            return 130
        except BrokenPipeError:
            return 1


def _pump(connection: socket.socket) -> int:
    sources = [connection.fileno(), sys.stdin.fileno()]
    while True:
        ready, _, _ = select.select(sources, [], [])
        if connection.fileno() in ready:
            try:
                data = connection.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                return 0
            os.write(sys.stdout.fileno(), data)
        elif ready:
            typed = os.read(sys.stdin.fileno(), 65536)
            if typed:
                connection.sendall(typed)
            else:
                connection.shutdown(socket.SHUT_WR)
                sources.remove(sys.stdin.fileno())


if __name__ == "__main__":
    sys.exit(main())

"""Starts real clients and daemons for a test, talks to them, and checks that nothing of them stays."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pytest
from census import GONE_S, SLOWER, Census, wait_exit

EVENT_S = 20.0 * SLOWER  # for what must happen; reached only when it does not
FULL = bool(os.environ.get("MONARCH_TEST_FULL"))
SUPPORT = pathlib.Path(__file__).parent
BIN = pathlib.Path(sys.executable).parent


class RemoteError(Exception):
    """An exception in a client."""

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__(f"{fields['types'][0]}: {fields['text']}")
        self.fields = fields

    def is_a(self, name: str) -> bool:
        return name in self.fields["types"]


class Client:
    """A `puppet.py`: `ask` evaluates there, `begin` does so beside, to be looked at later."""

    def __init__(self, live: Live, env: dict[str, str], **options: Any) -> None:
        command, self._commands = os.pipe()
        self._answers, answer = os.pipe()
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, str(SUPPORT / "puppet.py"), str(command), str(answer)],
            env=env,
            pass_fds=(command, answer),
            stdin=subprocess.DEVNULL,
            **options,
        )
        os.close(command)
        os.close(answer)
        self.pid = self.process.pid
        self.live = live
        self._buffer = b""
        self._number = 0
        self._done: dict[int, dict[str, Any]] = {}

    def _send(self, code: str, aside: bool) -> int:
        self._number += 1
        line = json.dumps({"id": self._number, "code": code, "aside": aside}) + "\n"
        os.write(self._commands, line.encode())
        return self._number

    def begin(self, code: str) -> int:
        return self._send(code, True)

    def wait_for_an_answer(self, at_most: float) -> None:
        """Comes back at that time, too, whatever has happened by then."""
        select.select([self._answers], [], [], at_most)

    def order(self, code: str) -> None:
        """Without waiting for what becomes of it, which may be the client's end."""
        self._send(code, False)

    def result(self, number: int, timeout: float = EVENT_S) -> Any:
        deadline = time.monotonic() + timeout
        while number not in self._done:
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self._answers], [], [], left)[0], "no answer in time"
            data = os.read(self._answers, 1 << 16)
            assert data, f"the client ended with {self.process.poll()}"
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                answer = json.loads(line)
                self._done[answer.pop("id")] = answer
        answer = self._done.pop(number)
        if "error" in answer:
            raise RemoteError(answer["error"])
        return answer["value"]

    def error(self, number: int, timeout: float = EVENT_S) -> RemoteError:
        with pytest.raises(RemoteError) as caught:
            self.result(number, timeout)
        return caught.value

    def ask(self, code: str, timeout: float = EVENT_S) -> Any:
        return self.result(self._send(code, False), timeout)

    def fails(self, code: str, timeout: float = EVENT_S) -> RemoteError:
        return self.error(self._send(code, False), timeout)

    def start_victims(self, count: int) -> list[int]:
        self.ask(f"(procs, victims) = start_victims({count})", 60)
        return list(self.ask("procs.pids()"))

    def daemon(self) -> int:
        """Its private one."""
        (pid,) = (
            p.pid for p in self.live.census.take().values() if p.parent == self.pid and p.name == "monarchd"
        )
        return pid

    def launcher(self) -> int:
        session = self.ask("process().runtime.session")
        (pid,) = (
            p.pid
            for p in self.live.census.take().values()
            if p.session == session and p.name.startswith("monarch-launche")
        )
        return pid

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)

    def finish(self, timeout: float = EVENT_S) -> int:
        """Lets it come to its end by itself."""
        self.close_commands()
        return self.process.wait(timeout)

    def close_commands(self) -> None:
        if self._commands >= 0:
            os.close(self._commands)
            self._commands = -1

    def close(self) -> None:
        self.close_commands()
        if self._answers >= 0:
            os.close(self._answers)
            self._answers = -1
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for file in (self.process.stdout, self.process.stderr):
            if file is not None:
                file.close()


class Daemon:
    """A shared one. All of a test have one run directory: the next takes over what the last has left."""

    def __init__(self, live: Live, arguments: tuple[str, ...], program: pathlib.Path) -> None:
        self.directory = live.folder / "shared"
        self.log = live.folder / "shared.log"
        self.process = subprocess.Popen(
            [str(program), "--run-dir", str(self.directory), "--log", str(self.log), *arguments],
            env=live.environment(),
            stdin=subprocess.DEVNULL,
        )
        self.pid = self.process.pid
        self.address = f"unix:{self.directory}"

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(EVENT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise


class WorkerDaemon:
    """A host that other daemons attach."""

    def __init__(self, live: Live, address: str, arguments: tuple[str, ...], options: dict[str, Any]) -> None:
        self.address = address
        self.process = subprocess.Popen(
            [str(BIN / "monarchd"), "--worker-address", address, *arguments],
            env=live.environment(),
            stdin=subprocess.DEVNULL,
            **options,
        )
        self.pid = self.process.pid

    def launchers(self) -> list[int]:
        children = pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(child) for child in children.split()]

    def close(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(EVENT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


class Live:
    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.census = Census()
        self.run_dir_stays = False  # that of a killed daemon, until the next one starts
        self._workers = 0
        self._fifos = 0
        self._open = contextlib.ExitStack()

    def environment(self, **more: str) -> dict[str, str]:
        env = {**os.environ, **self.census.environment(), "XDG_RUNTIME_DIR": str(self.folder), **more}
        env["PATH"] = f"{BIN}:{env['PATH']}"
        env["PYTHONPATH"] = str(SUPPORT)
        return {key: value for key, value in env.items() if value}

    def client(self, *, address: str = "private", **options: Any) -> Client:
        client = Client(self, self.environment(MONARCH_ADDRESS=address), **options)
        self._open.callback(client.close)
        return client

    def worker(self, *arguments: str, address: str = "", **options: Any) -> WorkerDaemon:
        self._workers += 1
        chosen = address or f"ipc://{self.folder}/host{self._workers}.sock"
        worker = WorkerDaemon(self, chosen, arguments, options)
        self._open.callback(worker.close)
        return worker

    def daemon(self, *arguments: str, program: pathlib.Path = BIN / "monarchd") -> Daemon:
        daemon = Daemon(self, arguments, program)
        self._open.callback(daemon.close)
        self._wait_for_socket(daemon)
        return daemon

    def _wait_for_socket(self, daemon: Daemon) -> None:
        """monarchctl answers as soon as the daemon does; each try takes as long as a process."""
        deadline = time.monotonic() + EVENT_S
        while self.ctl("status", "--address", daemon.address, check=False).returncode != 0:
            assert daemon.process.poll() is None, "monarchd ended"
            assert time.monotonic() < deadline, "monarchd does not answer"

    def ctl(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(BIN / "monarchctl"), *arguments],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=EVENT_S,
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def script(self, text: str, *, name: str = "program.py", **options: Any) -> subprocess.Popen[str]:
        """A program of a user, with its output in pipes."""
        path = self.folder / name
        path.write_text(text)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        process = subprocess.Popen(
            [sys.executable, str(path)], env=self.environment(), text=True, cwd=self.folder, **options
        )
        self._open.callback(_end, process)
        return process

    def fifo(self, name: str) -> pathlib.Path:
        self._fifos += 1
        path = self.folder / f"{name}-{self._fifos}"
        os.mkfifo(path)
        return path

    def private_address(self) -> str:
        """Of the one daemon that there is, a client's own; others of this user are none of a test's business."""
        (name,) = self.run_dirs()
        return f"unix:{self.folder / 'monarch' / name}"

    def run_dirs(self) -> list[str]:
        parent = self.folder / "monarch"
        return sorted(path.name for path in parent.iterdir() if path.is_dir()) if parent.exists() else []

    def assert_gone(self, timeout: float = GONE_S) -> float:
        """Nothing is left within the time: no process, no directory. Returns the seconds it took."""
        took = self.census.wait_gone(timeout)
        assert self.census.cgroups() == []
        assert self.run_dir_stays or self.run_dirs() == []
        return took

    def close(self) -> None:
        self._open.close()


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.communicate()


def read_fifo(path: pathlib.Path, timeout: float = EVENT_S) -> str:
    """The first line that someone writes into it."""
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    try:
        data = b""
        deadline = time.monotonic() + timeout
        while b"\n" not in data:
            assert select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0], f"nothing in {path}"
            data += os.read(fd, 4096)
        return data.partition(b"\n")[0].decode()
    finally:
        os.close(fd)


@contextlib.contextmanager
def opened() -> Iterator[Live]:
    """Nothing of it is left afterwards."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mt-"))
    found = Live(folder)
    try:
        yield found
        found.close()
        found.assert_gone()
    finally:
        found.close()
        for pid in found.census.take():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            wait_exit(pid, GONE_S)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def live() -> Iterator[Live]:
    with opened() as found:
        yield found

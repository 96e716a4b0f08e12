"""Real processes that run the command, made by forking one that has imported it already.

Starting Python and importing everything takes most of a second of a test that needs a tenth of one. What is forked
here is a process like any other: it has its own pid, files, signals and death.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path


class Command:
    """One command under way. Its output goes to files, so it is never held up by a full pipe."""

    def __init__(self, server: str, words: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
        self.returncode: int | None = None
        self._outputs = [tempfile.TemporaryFile("w+b") for _ in range(2)]  # noqa: SIM115 - closed in close()
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.connect(server)
        request = json.dumps({"words": list(words), "folder": str(folder), "environment": environment})
        with open(os.devnull, "rb") as nothing:
            files = [nothing.fileno(), *(output.fileno() for output in self._outputs)]
            socket.send_fds(self._connection, [request.encode()], files)
        self._said = self._connection.makefile("r")
        self.pid = int(self._said.readline())

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def poll(self) -> int | None:
        ready, _, _ = select.select([self._connection], [], [], 0)
        return self.wait() if ready else self.returncode

    def wait(self, timeout: float = 30.0) -> int:
        if self.returncode is None:
            self._connection.settimeout(timeout)
            self.returncode = int(self._said.readline())
        return self.returncode

    @property
    def output(self) -> tuple[str, str]:
        """What it has written to standard output and standard error so far."""
        texts = []
        for output in self._outputs:
            output.seek(0)
            texts.append(output.read().decode())
        return texts[0], texts[1]

    def close(self) -> None:
        """Kill it if it is still there, and let go of everything."""
        self.send_signal(signal.SIGKILL)
        self.wait()
        self._said.close()
        self._connection.close()
        for output in self._outputs:
            output.close()


class CommandServer:
    """The process that the others are forked from. It ends with this one."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "s")
        self._process = subprocess.Popen(
            [sys.executable, __file__, self.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def close(self) -> None:
        self._process.communicate()


def serve(address: str) -> None:
    """Answer requests until standard input ends. Returns once in each process that is to be the command."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen()
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            os._exit(0)
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if _keep(connection):
                return
        connection.close()


def _keep(connection: socket.socket) -> bool:
    """Fork the command and tell its pid and how it ended; return (True) only in the command itself."""
    data, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    request = json.loads(data)
    pid = os.fork()
    if pid == 0:
        connection.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv = ["geartrain", *request["words"]]
        return True
    for file in files:
        os.close(file)
    connection.sendall(f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file: the command would not have it
    # Imported for the processes that are forked from here.
    names = "rich.table structlog anyio._backends._asyncio anyio.to_thread geartrain.persistence.sqlite"
    for name in [*names.split(), "geartrain.models._offline._researcher", "geartrain.cli._show"]:
        importlib.import_module(name)
    from geartrain.cli import main

    address = sys.argv[1]
    # What is loaded at first use is loaded here, too.
    sys.argv = ["geartrain", "list", "--limit", "1", "--store", f"{address}.missing"]
    with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()):
        main()
    gc.freeze()  # so that the processes forked from here share what is loaded
    serve(address)
    code: object = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    # As at the end of any Python, threads are waited for; taking everything loaded apart would only take time.
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)

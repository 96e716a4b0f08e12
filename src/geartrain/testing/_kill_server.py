"""The fork server: a process that has imported everything and opened nothing, and forks one child per order.

Importing the runtime costs a few hundred milliseconds, forking a few. The server has no thread, no loop and no open
file but its pipes, so that what it forks is as good as a fresh process.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from geartrain.testing._kill_child import Order, child_main


class ForkServer:
    """A fork server's handle, from the side of the harness. Used by one thread at a time.

    *path* is put before the modules that the children can import; *environment* goes to the server on top of this
    process's own.
    """

    def __init__(self, *, path: Sequence[str | Path] = (), environment: Mapping[str, str] | None = None) -> None:
        env = {**os.environ, **(environment or {})}
        # A file that a run's tools write may be compared byte by byte; where a test's coverage goes is not ours.
        env.pop("COV_CORE_SOURCE", None)
        env["PYTHONPATH"] = os.pathsep.join([*map(str, path), *filter(None, [env.get("PYTHONPATH")])])
        self._process: Final = subprocess.Popen(
            [sys.executable, "-m", "geartrain.testing.kill", "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, order: Order) -> int:
        """Have a child carry out *order*; return its exit code, or the negative number of the signal that ended it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the fork server has ended with {self._process.wait()}")
        return int(line)

    def close(self) -> None:
        """End the server."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def serve() -> None:
    """Fork a child per line of standard input, and answer each with how it ended."""
    import geartrain.persistence.sqlite  # noqa: F401, PLC0415 - so that each child has it already

    gc.collect()
    gc.freeze()
    while line := sys.stdin.buffer.readline():
        order = msgspec.json.decode(line, type=Order)
        pid = os.fork()
        if not pid:
            child_main(order)
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()

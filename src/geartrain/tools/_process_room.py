"""What one call may use of its worker process, and whether it has left anything behind."""

from __future__ import annotations

import math
import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from geartrain.limits import Limits

_LIMIT_MAX: Final = 2**62
# Connections that are kept open for the next call are fine; more than so many in one call are a leak.
FILES_LEFT_MAX: Final = 32
_HANDLED: Final = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


class Room:
    """The worker as it was before a call."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._threads = threading.active_count()
        self._size = _private_bytes()
        self._files = _open_files()
        self._place = _place()
        self._changed = False

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Bound memory and processor time: beyond, there is a `MemoryError` or the end of this process.

        The warden bounds the same for all that the call starts, and does not depend on what the tool leaves in force.
        """
        limits = self._limits
        used = resource.getrusage(resource.RUSAGE_SELF)
        self._set(resource.RLIMIT_CPU, used.ru_utime + used.ru_stime + limits.process_cpu_seconds + 1)
        if self._size:
            # Not the address space: Java, Node.js and Go reserve much more of it than they use.
            self._set(resource.RLIMIT_DATA, self._size + limits.process_memory_bytes)
        try:
            yield
        except MemoryError as error:
            if not error.args:
                error.args = (f"a call may use {limits.process_memory_bytes:,} bytes",)
            raise
        finally:
            self._set(resource.RLIMIT_CPU, math.inf)
            self._set(resource.RLIMIT_DATA, math.inf)

    def _set(self, kind: int, value: float) -> None:
        hard = resource.getrlimit(kind)[1]
        most = _LIMIT_MAX if hard == resource.RLIM_INFINITY else hard
        try:
            resource.setrlimit(kind, (math.ceil(value) if value < most else hard, hard))
        except (ValueError, OSError):  # a tool has set it
            self._changed = True

    def is_as_before(self) -> bool:
        """Whether another call can run here as if this one had not: nothing that can be seen is left of it."""
        if self._changed or threading.active_count() > self._threads or _place() != self._place:
            return False
        if _open_files() - self._files > FILES_LEFT_MAX:
            return False
        if _private_bytes() - self._size > self._limits.process_memory_bytes // 4:
            return False
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return False


def _place() -> tuple[str, dict[str, str], list[Any]]:
    """Return the current folder, the environment and what is done at signals."""
    handlers = [signal.getsignal(number) for number in _HANDLED]
    try:
        return os.getcwd(), dict(os.environ), handlers
    except OSError:  # the folder was deleted
        return "", dict(os.environ), handlers


def _open_files() -> int:
    """Return how many files and connections are open; 0 if not known."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def _private_bytes() -> int:
    """Return how much memory of its own this process may write to, which is what RLIMIT_DATA counts; 0 if not known."""
    with suppress(OSError), open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[5]) * resource.getpagesize()
    return 0

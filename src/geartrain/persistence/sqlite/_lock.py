"""Who owns a store file: one process, and one handle in it.

Between processes a POSIX lock decides, on a file of its own that nothing else opens: closing any descriptor of a
file drops all locks that the process has on it, so neither SQLite's file nor a shared one would do. Within the
process, where POSIX locks do not count, a register decides. A child made by `fork` owns nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Final

from geartrain.persistence._errors import StoreBusy

_SAY_SECONDS: Final = 0.5  # how long a refused process waits for a new owner to have written its name


class _Register:
    """Which store files this process has open."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.owners: dict[str, float] = {}
        self.handles: dict[str, int] = {}


_register = _Register()


def _start_anew() -> None:
    global _register  # noqa: PLW0603 - what the parent has open is not ours, and its guard may be held for ever
    _register = _Register()


os.register_at_fork(after_in_child=_start_anew)


class FileUse:
    """One handle's use of one store file: counted, and exclusive once it is locked.

    A handle that was let go of cannot be locked any more, so that an opening that was given up while its thread
    went on leaves no lock behind.
    """

    __slots__ = ("_descriptor", "_ended", "_key", "_owner", "_path", "_register", "_used")

    def __init__(self, path: str) -> None:
        self._path: Final = path
        self._key: Final = os.path.realpath(path)
        self._register: Final = _register
        self._descriptor: int | None = None
        self._owner = False
        self._used = False
        self._ended = False

    def begin(self, look: Callable[[], None]) -> None:
        """Count this handle, and call *look* if it is the only one of this process on the file.

        Only then may the file be opened by other means than SQLite's, and only before SQLite opens it: closing
        it would drop SQLite's locks. So *look* is called under the guard, and what it raises is raised here.
        """
        with self._register.guard:
            self._check()
            count = self._register.handles.get(self._key, 0)
            if not count:
                look()
            self._register.handles[self._key] = count + 1
            self._used = True

    def lock(self, now: float) -> None:
        """Become the owner, as of *now*.

        Raises:
            StoreBusy: Another process owns the file, or another handle of this process.
        """
        with self._register.guard:
            self._check()
            if self._key in self._register.owners:
                raise StoreBusy(self._path, os.getpid(), self._register.owners[self._key])
            descriptor = os.open(self._key + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                # This process has no lock on that file, so closing it drops none.
                pid, since = _holder(descriptor)
                os.close(descriptor)
                raise StoreBusy(self._path, pid, since) from None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "since": now}).encode(), 0)
            self._descriptor = descriptor
            self._register.owners[self._key] = now
            self._owner = True

    def _check(self) -> None:
        if self._ended:
            raise RuntimeError("this opening was given up")

    def end(self) -> None:
        """Let go of the file. Ending twice changes nothing."""
        with self._register.guard:
            self._ended = True
            if self._descriptor is not None:
                os.ftruncate(self._descriptor, 0)
                os.close(self._descriptor)
                self._descriptor = None
            if self._owner:
                del self._register.owners[self._key]
                self._owner = False
            if self._used:
                self._used = False
                self._register.handles[self._key] -= 1
                if not self._register.handles[self._key]:
                    del self._register.handles[self._key]


def _holder(descriptor: int) -> tuple[int | None, float | None]:
    patience = time.monotonic() + _SAY_SECONDS
    while True:
        try:
            said = json.loads(os.pread(descriptor, 1_000, 0))
            return int(said["pid"]), float(said["since"])
        except (ValueError, KeyError, TypeError):
            if time.monotonic() > patience:
                return None, None
            time.sleep(0.01)

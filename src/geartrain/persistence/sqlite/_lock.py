"""Who owns a store file: one process, and one handle in it.

Between processes a POSIX lock decides, on a file of its own that nothing else opens: closing any descriptor of a
file drops all locks that the process has on it, so neither SQLite's file nor a shared one would do. Within the
process, where POSIX locks do not count, a register decides. A child made by `fork` owns nothing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from geartrain.persistence._errors import StoreBusy, StoreUnusable

_FLOCK: Final = "hhqqi4x"  # struct flock of Linux: type, whence, start, length, pid
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
            StoreUnusable: There can be no lock there, with the reason.
        """
        with self._register.guard:
            self._check()
            if self._key in self._register.owners:
                raise StoreBusy(self._path, os.getpid(), self._register.owners[self._key])
            try:
                self._descriptor = self._locked(now)
            except OSError as error:
                why = error.strerror or str(error)
                raise StoreUnusable(self._path, f"its lock {self._key + '.lock'!r} cannot be made: {why}") from error
            self._register.owners[self._key] = now
            self._owner = True

    def _locked(self, now: float) -> int:
        descriptor = os.open(self._key + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock(descriptor, self._path)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "since": now}).encode(), 0)
        except BaseException:
            # Either this process has no lock on that file, or it is not to keep it.
            os.close(descriptor)
            raise
        return descriptor

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


def _lock(descriptor: int, path: str) -> None:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        pid, since = _holder(descriptor)
        raise StoreBusy(path, pid, since) from None


@dataclass(frozen=True, slots=True)
class StoreOwner:
    """The process that owns a store; `pid` is None if it has not said."""

    pid: int | None

    def __str__(self) -> str:
        return "another process" if self.pid is None else f"pid {self.pid}"


def store_owner(path: str | os.PathLike[str]) -> StoreOwner | None:
    """Return who owns the store at *path*, or None if nobody does. Nothing is locked for it, not even briefly."""
    key = os.path.realpath(path)
    with _register.guard:
        if key in _register.owners:  # opening its lock file and closing it again would drop the lock
            return StoreOwner(os.getpid())
        try:
            descriptor = os.open(key + ".lock", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return _owner_by_lock(descriptor) if sys.platform == "linux" else _owner_by_name(descriptor)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        finally:
            os.close(descriptor)


def _owner_by_lock(descriptor: int) -> StoreOwner | None:
    """Ask who would be in the way of a lock: a killed owner leaves its name, but no lock."""
    wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, wanted))
    return StoreOwner(pid if pid > 0 else None) if kind != fcntl.F_UNLCK else None


def _owner_by_name(descriptor: int) -> StoreOwner | None:
    pid = int(json.loads(os.pread(descriptor, 1_000, 0))["pid"])
    with contextlib.suppress(PermissionError):  # it is there, and of another user
        os.kill(pid, 0)
    return StoreOwner(pid)


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

"""Opening what lies below a root folder, and nothing else.

Rule 1: a path is a list of names. It is refused as text if it is absolute or contains `..`; nothing is normalised.
Rule 2: each name is opened relative to the folder opened before it, and no symbolic link is followed, wherever it
leads. So there is no moment between a check and a use: a folder that somebody swaps for a link meanwhile is refused
by the system at the opening. (Linux's `openat2` with RESOLVE_BENEATH would also allow links that stay inside; it is
not everywhere, and Python does not offer it.)
Rule 3: only folders and regular files are opened, and never so that opening waits: a FIFO or a device is refused.
The root itself is the user's choice and may be a link.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any, Final

from geartrain.tools._clean import cleaned
from geartrain.tools._errors import FileFailed, PathRefused

NAMES_MAX: Final = 64
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_REASONS: Final[Mapping[int, str]] = {
    errno.ENOENT: "no such file or folder",
    errno.ENOTDIR: "part of it is a file or a symbolic link, not a folder; links are not followed",
    errno.ELOOP: "is a symbolic link; links are not followed",
    errno.EISDIR: "is a folder",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "is on a file system that is read-only",
    errno.ENOSPC: "the disk is full",
    errno.ENAMETOOLONG: "a name in it is too long",
    errno.ENXIO: "is not a regular file",
}


def root_of(context: Mapping[str, Any]) -> str:
    """Return the root folder that the run was started with.

    Raises:
        PathRefused: There is none, or it is not an absolute path: what it means would depend on the process.
    """
    root = context.get("root")
    if not isinstance(root, str) or not root:
        raise PathRefused("", "this run has no root folder; start it with context={'root': '/path/to/folder'}")
    if not os.path.isabs(root) or "\0" in root:
        raise PathRefused(root, "the root folder of a run must be an absolute path")
    return root


def names_of(path: str) -> tuple[str, ...]:
    """Return the names that lead from the root to *path*; none for the root itself, written `.`.

    Raises:
        PathRefused: It is absolute, has `..` or NUL in it, or is too deep.
    """
    if path.startswith("/"):
        raise PathRefused(_shown(path), "must be relative to the root folder, without a '/' at the start")
    if "\0" in path:
        raise PathRefused(_shown(path), "must not contain NUL")
    names = PurePosixPath(path).parts
    if ".." in names:
        raise PathRefused(_shown(path), "must not contain '..'")
    if len(names) > NAMES_MAX:
        raise PathRefused(_shown(path), f"must have at most {NAMES_MAX} parts")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise PathRefused(_shown(path), "must be valid text") from None
    return names


def _shown(path: str) -> str:
    text = cleaned(path)
    return text if len(text) <= 200 else text[:200] + "…"


@contextmanager
def opened_folder(root: str, path: str, *, create: bool = False) -> Iterator[int]:
    """Open the folder *path* below *root* and yield its descriptor; with *create*, make what is missing.

    Raises:
        PathRefused: The path may not be used.
        FileFailed: It is no folder, is not there, or may not be opened.
    """
    names = names_of(path)
    with explained("."):
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with explained(path):
        try:
            for name in names:
                descriptor = _descended(descriptor, name, create=create)
        except BaseException:
            os.close(descriptor)
            raise
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _descended(folder: int, name: str, *, create: bool) -> int:
    """Return the descriptor of the folder *name* in *folder*, which is closed; on an error it stays open."""
    if create:
        try:
            os.mkdir(name, dir_fd=folder)
        except FileExistsError:
            pass
        else:
            os.fsync(folder)
    descriptor = os.open(name, _FOLDER, dir_fd=folder)
    os.close(folder)
    return descriptor


@contextmanager
def opened_file(root: str, path: str) -> Iterator[int]:
    """Open the regular file *path* below *root* for reading and yield its descriptor.

    Raises:
        PathRefused: The path may not be used.
        FileFailed: It is no regular file, is not there, or may not be read.
    """
    folder, name = parted(path)
    with opened_folder(root, folder) as parent, opened_in(parent, name, path) as descriptor:
        yield descriptor


@contextmanager
def opened_in(folder: int, name: str, path: str) -> Iterator[int]:
    """Open the regular file *name* of an open folder for reading; *path* is for messages."""
    with explained(path):
        descriptor = os.open(name, _FILE, dir_fd=folder)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise FileFailed(_shown(path), "is a folder" if stat.S_ISDIR(mode) else "is not a regular file")
        yield descriptor
    finally:
        os.close(descriptor)


def parted(path: str) -> tuple[str, str]:
    """Return the path of the folder and the name of the file that *path* leads to.

    Raises:
        PathRefused: It may not be used, or is the root itself.
    """
    names = names_of(path)
    if not names or path.endswith(("/", "/.")):
        raise PathRefused(_shown(path), "must name a file")
    return "/".join(names[:-1]), names[-1]


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Raise what the system says about *path* in here as `FileFailed`."""
    try:
        yield
    except OSError as error:
        # The system's own message would show nothing but a number and, for the root, a path of this machine.
        reason = (
            _REASONS.get(error.errno or 0) or f"cannot be used ({errno.errorcode.get(error.errno or 0, 'unknown')})"
        )
        raise FileFailed(_shown(path), reason) from None

"""Tools for the files below a run's root folder: `context={"root": …}`, given when the run is started.

Plain functions, run on threads. Each output fits what a model is shown by default (16 KiB), so that nothing is cut out
of its middle, and says how to get the rest.
"""

from __future__ import annotations

import io
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Final

from msgspec import Meta

from geartrain.ids import digest
from geartrain.tools._clean import cleaned
from geartrain.tools._confine import explained, opened_file, opened_folder, parted, root_of
from geartrain.tools._context import ToolContext
from geartrain.tools._errors import FileFailed
from geartrain.tools._found import Done, NotDone, Unknown
from geartrain.tools._search import PROBE_BYTES, Entry, Search, entries_of, matcher, shown_name
from geartrain.tools._tool import Tool, tool

OUTPUT_BYTES_MAX: Final = 15_000
LINE_BYTES_MAX: Final = 2_000
SCANNED_BYTES_MAX: Final = 256 * 1024 * 1024
WRITTEN_BYTES_MAX: Final = 1024 * 1024

Positive = Annotated[int, Meta(ge=1)]


@tool(read_only=True)
def list_dir(context: ToolContext, path: str = ".") -> str:
    """List a folder: one name a line, folders with a slash, files with their size. Links are shown and not followed.

    Args:
        context: The call.
        path: The folder, relative to the root folder.
    """
    with opened_folder(root_of(context.context), path) as folder, explained(path):
        entries, more = entries_of(folder)
    lines: list[str] = []
    room = OUTPUT_BYTES_MAX
    for entry in entries:
        line = _listed(entry)
        room -= len(line.encode()) + 1
        if room < 0:
            break
        lines.append(line)
    left = len(entries) - len(lines)
    if left or more:
        lines.append(f"[{'more than ' * more}{left:,} more entries; list a folder in it, or use search_code]")
    return "\n".join(lines) or "(empty folder)"


def _listed(entry: Entry) -> str:
    name = shown_name(entry.name)
    match entry.kind:
        case "folder":
            return f"{name}/"
        case "file":
            return f"{name} ({entry.size:,} bytes)"
        case "link":
            return f"{name} (symbolic link, not followed)"
    return f"{name} (not a regular file)"


@tool(read_only=True)
def read_file(context: ToolContext, path: str, start_line: Positive = 1, line_count: Positive = 200) -> str:
    """Read lines of a text file. Each line of the answer begins with its number: `12: text`.

    Args:
        context: The call.
        path: The file, relative to the root folder.
        start_line: The first line to read, counted from 1.
        line_count: How many lines to read at most.
    """
    with opened_file(root_of(context.context), path) as descriptor, explained(path):
        size = os.fstat(descriptor).st_size
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            if b"\0" in file.peek(PROBE_BYTES)[:PROBE_BYTES]:
                raise FileFailed(path, f"is not text; it has {size:,} bytes")
            return _numbered(file, path, start_line, line_count)


def _numbered(file: io.BufferedReader, path: str, start_line: int, line_count: int) -> str:
    lines: list[str] = []
    room, number = OUTPUT_BYTES_MAX, 0
    for number, (line, size) in enumerate(_read_lines(file), start=1):
        if file.tell() > SCANNED_BYTES_MAX:
            raise FileFailed(path, f"line {start_line:,} is not within its first {SCANNED_BYTES_MAX:,} bytes")
        if number < start_line:
            continue
        text = f"{number}: {cleaned(line.decode('utf-8', 'backslashreplace'))}"
        text += f" [… the line has {size:,} bytes]" * (size > len(line))
        room -= len(text.encode()) + 1
        if len(lines) == line_count or (room < 0 and lines):
            return "\n".join([*lines, f"[the file goes on; continue with start_line={number}]"])
        lines.append(text)
    if not number:
        return "(empty file)"
    if not lines:
        raise FileFailed(path, f"has {number:,} line(s); start_line is {start_line:,}")
    return "\n".join(lines)


def _read_lines(file: io.BufferedReader) -> Iterator[tuple[bytes, int]]:
    """Yield the start of each line, without its end, and the size of the whole line in bytes."""
    while line := file.readline(LINE_BYTES_MAX):
        size, last = len(line), line
        while not last.endswith(b"\n") and size <= SCANNED_BYTES_MAX and (last := file.readline(64 * 1024)):
            size += len(last)
        ending = 2 if (line + last).endswith(b"\r\n") else 1 if last.endswith(b"\n") else 0
        size -= ending
        yield line[:size], size


@tool(read_only=True)
def search_code(
    context: ToolContext,
    pattern: Annotated[str, Meta(min_length=1)],
    path: str = ".",
    glob: Annotated[str, Meta(min_length=1, max_length=200)] = "*",
    literal: bool = False,
    ignore_case: bool = False,
    max_matches: Annotated[int, Meta(ge=1, le=1_000)] = 100,
) -> str:
    """Search the text files of a folder and the folders in it; answers `path:line: text`, a match a line.

    Args:
        context: The call.
        pattern: A regular expression, without backreferences and look-around; searched line by line.
        path: The folder to search, relative to the root folder.
        glob: Only files whose name, or path from the root, fits this, like `*.py` or `src/*.py`.
        literal: Take the pattern as plain text.
        ignore_case: Upper and lower case are the same.
        max_matches: Show at most so many matches; of more, some of every file.
    """
    matches, glance = matcher(pattern, literal=literal, ignore_case=ignore_case)
    search = Search(root_of(context.context), matches, glob, max_matches, OUTPUT_BYTES_MAX, glance)
    with explained(path):
        search.run(path)
    return search.text()


def _verify_write(arguments: dict[str, Any], context: ToolContext) -> Done | NotDone | Unknown:
    """Compare what is in the file with what was to be written, by digest."""
    path, data = arguments["path"], arguments["content"].encode()
    try:
        with opened_file(root_of(context.context), path) as descriptor, explained(path):
            if os.fstat(descriptor).st_size != len(data):
                return NotDone()
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                same = digest(file.read(len(data) + 1)) == digest(data)
    except FileFailed:  # not there, or not readable: writing again says more
        return NotDone()
    return Done(_written(path, data)) if same else NotDone()


@tool(idempotent=True, verify=_verify_write)
def write_file(context: ToolContext, path: str, content: str) -> str:
    """Write a text file, replacing what is there. Missing folders are made. The file has all of it or is as before.

    Args:
        context: The call.
        path: The file, relative to the root folder.
        content: The whole text of the file.
    """
    try:
        data = content.encode()
    except UnicodeEncodeError:
        raise FileFailed(path, "the content is not valid text (it has lone surrogates)") from None
    if len(data) > WRITTEN_BYTES_MAX:
        raise FileFailed(path, f"the content has {len(data):,} bytes, at most {WRITTEN_BYTES_MAX:,} are written")
    folder, name = parted(path)
    with opened_folder(root_of(context.context), folder, create=True) as parent, explained(path):
        mode = _replaceable(parent, name, path)
        with _beside(parent) as temporary:
            _write(parent, temporary, data, mode)
            os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        os.fsync(parent)
    return _written(path, data)


def _replaceable(folder: int, name: str, path: str) -> int | None:
    """Return the permissions of the file that will be replaced, or None if there is none."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise FileFailed(path, "is not a regular file (a folder, a symbolic link or a device); it is not replaced")
    return stat.S_IMODE(status.st_mode)


@contextmanager
def _beside(folder: int) -> Iterator[str]:
    """Yield a name for a temporary file in the folder; it is removed unless it was renamed."""
    # Random, so that a call that was given up and still writes shares no file with the same call tried again.
    temporary = f".geartrain-{secrets.token_hex(8)}.tmp"
    try:
        yield temporary
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _write(folder: int, name: str, data: bytes, mode: int | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o666, dir_fd=folder)
    with os.fdopen(descriptor, "wb") as file:
        if mode is not None:
            os.fchmod(descriptor, mode & 0o777)
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def _written(path: str, data: bytes) -> str:
    return f"wrote {len(data):,} bytes to {shown_name(path)}"


file_tools: Final[tuple[Tool, ...]] = (list_dir, read_file, search_code, write_file)

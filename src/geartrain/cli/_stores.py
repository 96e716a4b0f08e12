"""Which store a command means.

Rule 1: `--store` (or GEARTRAIN_STORE) decides alone.
Rule 2: `run` keeps its runs in `.geartrain/runs.db` of the present folder, and makes it. Other commands make nothing;
they look in the present folder and in those above it, as git does.
Rule 3: a run is found by its id alone, from any folder: stores in which this user's commands ran something are noted
in a small index (docs/decisions/0002-finding-the-store.md). The index is a convenience: no failure of it is an error.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from geartrain.cli._errors import RunAmbiguous, RunUnknown, StoreNotFound
from geartrain.errors import GeartrainError
from geartrain.runtime import RunReader, open_reader

FOLDER: Final = ".geartrain"
FILE: Final = "runs.db"
KNOWN_MAX: Final = 100
_LOCK_SECONDS: Final = 1.0
_PAGE: Final = 1_000
_SHOWN: Final = 5
# What the id of every run begins with.
_EVERY_ID: Final = "r-"


@dataclass(frozen=True, slots=True)
class Place:
    """A store's path, and whether the user named it (or stands in its folder), or it was found in the index."""

    path: Path
    how: str  # "named", "near" or "known"


def near_store(folder: Path) -> Path | None:
    """Return the store of *folder*, or of the nearest folder above that has one."""
    for place in (folder, *folder.parents):
        path = place / FOLDER / FILE
        if path.is_file():
            return path
    return None


def store_to_run_in(named: Path | None, folder: Path) -> Place:
    """Return the store for a new run; the default one is made, and kept out of version control.

    Raises:
        StoreNotFound: The default folder cannot be made.
    """
    if named is not None:
        return Place(named.absolute(), "named")
    home = folder / FOLDER
    try:
        home.mkdir(exist_ok=True)
        ignore = home / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise StoreNotFound(f"{home} (it cannot be made: {error.strerror})") from None
    return Place(home / FILE, "near")


def store_to_read(named: Path | None, folder: Path, index: Index) -> Place:
    """Return the store that a command without a run means.

    Raises:
        StoreNotFound: There is none.
    """
    if named is not None:
        if not named.exists():
            raise StoreNotFound(str(named))
        return Place(named.absolute(), "named")
    near = near_store(folder)
    if near is None:
        known = tuple(str(path) for path in index.read() if path.is_file())[:_SHOWN]
        raise StoreNotFound(f"{FOLDER}/{FILE} in {folder} and the folders above it", known)
    return Place(near, "near")


async def find_run(given: str, named: Path | None, folder: Path, index: Index) -> tuple[Place, str]:
    """Return the store that has the run *given*, an id or its beginning, and the whole id.

    Raises:
        RunUnknown: No store that was looked through has it.
        RunAmbiguous: It fits several runs.
        StoreNotFound: There is no store to look through.
    """
    try:
        first: Place | None = store_to_read(named, folder, index)
    except StoreNotFound:
        if named is not None:
            raise
        first = None
    looked: list[str] = []
    if first is not None:
        looked.append(str(first.path))
        found = await _runs_fitting(first.path, given)
        if found or named is not None:
            return first, _the_one(given, found, looked)
    fitting: list[tuple[Place, str]] = []
    for path in index.read():
        if str(path) in looked or not path.is_file():
            continue
        looked.append(str(path))
        # A store that cannot be read any more must not hide a run that another one has.
        with suppress(GeartrainError, OSError):
            fitting += [(Place(path, "known"), run_id) for run_id in await _runs_fitting(path, given)]
    if not looked:
        raise StoreNotFound(f"{FOLDER}/{FILE} in {folder} and the folders above it")
    exact = [one for one in fitting if one[1] == given]
    fitting = exact if len(exact) == 1 else fitting
    if len(fitting) > 1:
        raise RunAmbiguous(given, tuple(f"{run_id} in {place.path}" for place, run_id in fitting[:_SHOWN]))
    if not fitting:
        raise RunUnknown(given, tuple(looked[:_SHOWN]))
    return fitting[0]


def _the_one(given: str, found: list[str], looked: list[str]) -> str:
    if not found:
        raise RunUnknown(given, tuple(looked))
    if len(found) > 1:
        raise RunAmbiguous(given, tuple(found[:_SHOWN]))
    return found[0]


async def _runs_fitting(path: Path, given: str) -> list[str]:
    """Return the run of that very id, or else those whose ids begin so: enough of them to say that they are several.

    What all ids begin with says nothing about which: of a tree it names the root.
    """
    async with open_reader(path) as reader:
        if await reader.journal.head(given) is not None:
            return [given]
        return [run_id async for run_id in _beginning(reader, given)]


async def _beginning(reader: RunReader, given: str) -> AsyncIterator[str]:
    after: tuple[float, str] | None = None
    count = 0
    while given and (rows := await reader.list(after=after, limit=_PAGE)):
        for row in rows:
            if row.id.startswith(given) and (row.parent is None or not _EVERY_ID.startswith(given)):
                yield row.id
                count += 1
        if count > _SHOWN:
            return
        after = (rows[-1].created_at, rows[-1].id)


class Index:
    """The stores in which this user's commands ran something: paths, one a line, the newest first."""

    __slots__ = ("_file",)

    def __init__(self, environment: Mapping[str, str]) -> None:
        base = environment.get("XDG_STATE_HOME", "")
        if not os.path.isabs(base):  # as the XDG specification wants: relative paths are ignored
            base = os.path.join(environment.get("HOME", ""), ".local", "state")
        self._file = Path(base) / "geartrain" / "stores" if os.path.isabs(base) else None

    def read(self) -> list[Path]:
        """Return the paths noted; none if there is no index, or it cannot be read."""
        if self._file is None:
            return []
        try:
            lines = self._file.read_text("utf-8", "surrogateescape").splitlines()
        except OSError:
            return []
        return [Path(line) for line in lines[:KNOWN_MAX] if os.path.isabs(line) and "\0" not in line]

    def note(self, store: Path) -> None:
        """Put *store* first. Whatever prevents it is no error."""
        line = str(store.absolute())
        if self._file is None or line != "".join(line.splitlines()):
            return
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _locked(self._file.with_name("stores.lock")):
                known = [line, *(str(path) for path in self.read() if str(path) != line)][:KNOWN_MAX]
                self._replace("\n".join(known) + "\n")

    def _replace(self, text: str) -> None:
        assert self._file is not None
        beside = self._file.with_name(f"stores.{os.getpid()}.tmp")
        try:
            beside.write_text(text, "utf-8", "surrogateescape")
            os.replace(beside, self._file)
        finally:
            beside.unlink(missing_ok=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep others from writing the index meanwhile; give up (`TimeoutError`, an OSError) after a second."""
    with path.open("w") as file:
        until = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise TimeoutError from None
                time.sleep(0.01)
        yield

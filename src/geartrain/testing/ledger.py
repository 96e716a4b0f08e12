"""The ledger: what really happened, kept outside of the store by those who did it.

Fake tools and models write what they begin and end, clients write what they were told. Each line is in the file
before whatever comes next happens, so it survives the death of the process at any moment. `read_store` reads a store
with a decoder of its own, and `check` holds the two against each other: neither knows anything of geartrain's code.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geartrain.testing._ledger_check import Death, check
from geartrain.testing._ledger_store import StoredRun, StoreSeen, read_store

__all__ = ["Death", "Ledger", "Line", "StoreSeen", "StoredRun", "check", "digest_of", "read_ledger", "read_store"]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a ledger.

    `what` is `start` or `end` (an effect, by its key), `told` (a client was told that something is stored), `failed`
    (a client was told that it is not) or `unknown`. `kind` of an effect is `write`, `once` (a write that may be
    repeated under its key), `outside` (what somebody outside does for an external tool), `read`, `model` or `provider`
    (a context provider that is asked).
    """

    what: str
    key: str
    kind: str = ""
    digest: str = ""
    more: dict[str, Any] = field(default_factory=dict)


def digest_of(arguments: Any) -> str:
    """Return a digest of JSON data that does not depend on how it is written."""
    text = json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Ledger:
    """An append-only file. Any number of processes and threads may write to it at once."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._descriptor: int | None = None

    def write(self, what: str, key: str, *, kind: str = "", digest: str = "", **more: Any) -> None:
        """Add a line. When the call returns the line survives a crash of this process and of the machine."""
        line = json.dumps({"what": what, "key": key, "kind": kind, "digest": digest, **more}) + "\n"
        if self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.write(self._descriptor, line.encode())
        os.fsync(self._descriptor)

    @contextmanager
    def effect(self, key: str, kind: str, arguments: Any = None, **more: Any) -> Iterator[None]:
        """Write that an effect begins, and that it has ended if what is inside does not raise."""
        digest = "" if arguments is None else digest_of(arguments)
        self.write("start", key, kind=kind, digest=digest, **more)
        yield
        self.write("end", key, kind=kind, digest=digest)

    def lines(self) -> list[Line]:
        """Return what is written so far."""
        return read_ledger(self.path)

    def has(self, what: str, key: str) -> bool:
        """Say whether there is a line of that kind for *key*."""
        return any(line.what == what and line.key == key for line in self.lines())


def read_ledger(path: str | os.PathLike[str]) -> list[Line]:
    """Return the lines of a ledger, oldest first; a last line that was cut off never counted."""
    try:
        text = Path(path).read_text("utf-8")
    except FileNotFoundError:
        return []
    found = []
    for line in text.split("\n")[:-1]:
        data = json.loads(line)
        what, key, kind, digest = (data.pop(name) for name in ("what", "key", "kind", "digest"))
        found.append(Line(what, key, kind, digest, data))
    return found

"""What can go wrong when a run leaves its store, or is read without one."""

from __future__ import annotations

from dataclasses import dataclass

from geartrain.errors import UsageError


@dataclass(eq=False)
class RedactionRefused(UsageError):
    """Without what the rules leave out, the run would not go the way it went. Nothing was exported."""

    run_id: str
    seq: int
    event: str
    reason: str

    def __str__(self) -> str:
        return (
            f"export run {self.run_id!r}: without what the rules leave out, event {self.seq} ({self.event}) "
            f"{self.reason}; leave out less of it"
        )


@dataclass(eq=False)
class ExportUnusable(UsageError):
    """A file is no whole exported run as it was written: `line` is the first that is wrong."""

    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"export {self.path!r}, line {self.line}: {self.reason}; export the run again"

"""What can be wrong about a tool or a call of it."""

from __future__ import annotations

from dataclasses import dataclass

from geartrain.errors import ResourceError, UsageError


@dataclass(eq=False)
class ToolDefinitionError(UsageError):
    """A function cannot be made a tool."""

    tool: str
    reason: str

    def __str__(self) -> str:
        return f"tool {self.tool!r}: {self.reason}"


@dataclass(eq=False)
class ArgumentsInvalid(UsageError):
    """The arguments of a call do not fit the tool. Nothing was run; the text is short and meant for a model."""

    tool: str
    reason: str

    def __str__(self) -> str:
        return f"arguments of {self.tool!r} do not fit: {self.reason}"


@dataclass(eq=False)
class ThreadsUnavailable(ResourceError):
    """The operating system gave no thread, or the pool is closed. The job was not started."""

    reason: str

    def __str__(self) -> str:
        return f"no thread to run on: {self.reason}"


@dataclass(eq=False)
class ProcessesUnavailable(ResourceError):
    """No worker process could be started, or the pool is closed. The call was not started."""

    reason: str

    def __str__(self) -> str:
        return f"no process to run in: {self.reason}"


@dataclass(eq=False)
class WorkerEnded(ResourceError):
    """A worker process has ended while it was at work."""

    reason: str

    def __str__(self) -> str:
        return f"its worker process {self.reason}"


@dataclass(eq=False)
class PathRefused(UsageError):
    """A path does not stay below the root folder, or names something that is never opened."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"path {self.path!r}: {self.reason}"


@dataclass(eq=False)
class FileFailed(ResourceError):
    """A file or folder below the root cannot be used as asked."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path!r}: {self.reason}"


@dataclass(eq=False)
class ResultUnavailable(UsageError):
    """The result of a call cannot be read again."""

    call_id: str
    reason: str

    def __str__(self) -> str:
        return f"call {self.call_id!r}: {self.reason}"


@dataclass(eq=False)
class PatternRefused(UsageError):
    """A search pattern is wrong, or needs more than a search in linear time."""

    pattern: str
    reason: str

    def __str__(self) -> str:
        return f"pattern {self.pattern!r}: {self.reason}"


@dataclass(eq=False)
class ToolExited(UsageError):
    """A task that a tool had started raised `SystemExit` or `KeyboardInterrupt`; only that task ends."""

    kind: str

    def __str__(self) -> str:
        return f"a task started by a tool raised {self.kind}"

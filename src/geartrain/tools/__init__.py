"""Declaring tools, running them, and the tools for files that come with geartrain."""

from typing import TYPE_CHECKING, Any

from geartrain.tools._ask_user import ask_user
from geartrain.tools._clean import Outcome, cleaned, error_text, present
from geartrain.tools._contain import inside_a_tool
from geartrain.tools._context import ToolContext
from geartrain.tools._errors import (
    ArgumentsInvalid,
    FileFailed,
    PathRefused,
    PatternRefused,
    ThreadsUnavailable,
    ToolDefinitionError,
    ToolExited,
)
from geartrain.tools._invoke import being_cancelled, invoke
from geartrain.tools._pool import KindStatistics, Pool, PoolStatistics, Ticket
from geartrain.tools._threads import ThreadPool, ThreadStatistics
from geartrain.tools._tool import Isolation, Tool, tool
from geartrain.tools._verify import Done, NotDone, Unknown, verify

if TYPE_CHECKING:
    from geartrain.tools._files import file_tools, list_dir, read_file, search_code, write_file

__all__ = [
    "ArgumentsInvalid",
    "Done",
    "FileFailed",
    "Isolation",
    "KindStatistics",
    "NotDone",
    "Outcome",
    "PathRefused",
    "PatternRefused",
    "Pool",
    "PoolStatistics",
    "ThreadPool",
    "ThreadStatistics",
    "ThreadsUnavailable",
    "Ticket",
    "Tool",
    "ToolContext",
    "ToolDefinitionError",
    "ToolExited",
    "Unknown",
    "ask_user",
    "being_cancelled",
    "cleaned",
    "error_text",
    "file_tools",
    "inside_a_tool",
    "invoke",
    "list_dir",
    "present",
    "read_file",
    "search_code",
    "tool",
    "verify",
    "write_file",
]

_FILE_TOOLS = frozenset({"file_tools", "list_dir", "read_file", "search_code", "write_file"})


def __getattr__(name: str) -> Any:
    """Load the tools for files when one is first asked for: most programs bring their own."""
    if name not in _FILE_TOOLS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from geartrain.tools import _files  # noqa: PLC0415

    return getattr(_files, name)

"""Declaring tools, running them, and the tools for files that come with geartrain."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from geartrain.tools._ask_user import ask_user
from geartrain.tools._clean import Outcome, cleaned, error_text, present
from geartrain.tools._contain import StartedTasks, inside_a_tool
from geartrain.tools._context import ToolContext
from geartrain.tools._errors import (
    ArgumentsInvalid,
    FileFailed,
    PathRefused,
    PatternRefused,
    ProcessesUnavailable,
    ResultUnavailable,
    ThreadsUnavailable,
    ToolDefinitionError,
    ToolExited,
)
from geartrain.tools._found import Done, NotDone, Unknown
from geartrain.tools._invoke import being_cancelled, invoke
from geartrain.tools._loading import loading_in_a_worker
from geartrain.tools._named_events import publish, wait_for
from geartrain.tools._note import Note
from geartrain.tools._pool import KindStatistics, Pool, PoolStatistics, ProcessStatistics, Ticket
from geartrain.tools._read_artifact import read_artifact
from geartrain.tools._threads import ThreadPool, ThreadStatistics
from geartrain.tools._tool import Isolation, Tool, tool
from geartrain.tools._verify import verify

if TYPE_CHECKING:
    from geartrain.tools._files import file_tools, list_dir, read_file, search_code, write_file
    from geartrain.tools._notes_folder import notes_folder
    from geartrain.tools._process_pool import ProcessPool
    from geartrain.tools._process_target import check_findable

__all__ = [
    "ArgumentsInvalid",
    "Done",
    "FileFailed",
    "Isolation",
    "KindStatistics",
    "NotDone",
    "Note",
    "Outcome",
    "PathRefused",
    "PatternRefused",
    "Pool",
    "PoolStatistics",
    "ProcessPool",
    "ProcessStatistics",
    "ProcessesUnavailable",
    "ResultUnavailable",
    "StartedTasks",
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
    "check_findable",
    "cleaned",
    "error_text",
    "file_tools",
    "inside_a_tool",
    "invoke",
    "list_dir",
    "loading_in_a_worker",
    "notes_folder",
    "present",
    "publish",
    "read_artifact",
    "read_file",
    "search_code",
    "tool",
    "verify",
    "wait_for",
    "write_file",
]

# Loaded when one is first asked for: most programs bring tools of their own, and run them in their own process.
_LAZY = {
    **dict.fromkeys(("file_tools", "list_dir", "read_file", "search_code", "write_file"), "_files"),
    "ProcessPool": "_process_pool",
    "check_findable": "_process_target",
    "notes_folder": "_notes_folder",
}


def __getattr__(name: str) -> Any:
    """Load what few programs need when it is first asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"geartrain.tools.{_LAZY[name]}"), name)

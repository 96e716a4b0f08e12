"""Which of the offered tools does what, found by name and parameters.

The known roles are those of a file reader. A tool that fits no role may still be asked, if it only reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from geartrain.machine import RequestedCall, ToolSpec


class Role(StrEnum):
    """What a known tool is for."""

    LIST = "list"
    READ = "read"
    SEARCH = "search"
    WRITE = "write"


_NAMES: Final[Mapping[str, Role]] = MappingProxyType(
    {
        "list_dir": Role.LIST,
        "list_directory": Role.LIST,
        "list_files": Role.LIST,
        "ls": Role.LIST,
        "read_file": Role.READ,
        "read_text": Role.READ,
        "open_file": Role.READ,
        "cat": Role.READ,
        "search_code": Role.SEARCH,
        "search_files": Role.SEARCH,
        "search": Role.SEARCH,
        "grep": Role.SEARCH,
        "write_file": Role.WRITE,
        "save_file": Role.WRITE,
    }
)

# What we mean, and how tools call it; the first that a tool has is used.
_PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "path": ("path", "file", "file_path", "filename", "directory", "dir", "folder", "root"),
        "start": ("start_line", "start", "offset", "first_line", "line"),
        "count": ("line_count", "count", "limit", "lines", "max_lines"),
        "pattern": ("pattern", "regex", "query", "text"),
        "results": ("max_results", "max_matches", "max_hits", "limit"),
        "glob": ("glob", "include", "file_pattern"),
        "ignore_case": ("ignore_case", "case_insensitive"),
        "content": ("content", "text", "contents", "data"),
    }
)
_NEEDED: Final[Mapping[Role, frozenset[str]]] = MappingProxyType(
    {
        Role.LIST: frozenset(),
        Role.READ: frozenset({"path"}),
        Role.SEARCH: frozenset({"pattern"}),
        Role.WRITE: frozenset({"path", "content"}),
    }
)


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The offered tools by role; `others` are read-only tools of no known role."""

    known: Mapping[Role, ToolSpec]
    others: tuple[ToolSpec, ...]

    @classmethod
    def of(cls, tools: Iterable[ToolSpec]) -> Toolbox:
        """Sort *tools* by role; the first of a role is taken."""
        known: dict[Role, ToolSpec] = {}
        others = []
        for tool in tools:
            role = _NAMES.get(tool.name.lower())
            if role is not None and role not in known and _fits(tool, role):
                known[role] = tool
            elif tool.read_only and tool.kind == "function":
                others.append(tool)
        return cls(MappingProxyType(known), tuple(others))

    @property
    def reads_files(self) -> bool:
        """Whether there is anything to do research with."""
        return Role.READ in self.known or Role.SEARCH in self.known

    def role_of(self, tool: str) -> Role | None:
        """Return the role of the tool called *tool*, also of one that was offered earlier; None if it has none."""
        return _NAMES.get(tool.lower()) if all(spec.name != tool for spec in self.others) else None

    def takes(self, role: Role, meant: str) -> bool:
        """Say whether the tool of *role* has a parameter for what is *meant*."""
        tool = self.known.get(role)
        return tool is not None and any(name in properties_of(tool) for name in _PARAMETERS[meant])

    def call(self, role: Role, **meant: Any) -> RequestedCall | None:
        """Return a call of the tool of *role*; what is meant and the tool has no parameter for is left out."""
        tool = self.known.get(role)
        if tool is None:
            return None
        properties = properties_of(tool)
        arguments: dict[str, Any] = {}
        for key, value in meant.items():
            name = next((name for name in _PARAMETERS[key] if name in properties and name not in arguments), None)
            if name is not None:
                arguments[name] = value
        return RequestedCall(tool=tool.name, arguments=json.dumps(arguments, ensure_ascii=False))


def properties_of(tool: ToolSpec) -> Mapping[str, Any]:
    """Return the schemas of the tool's parameters by name; empty if its schema names none."""
    schema = tool.parameters
    reference = schema.get("$ref")
    if isinstance(reference, str):
        found = schema.get("$defs", {}).get(reference.rpartition("/")[2])
        schema = found if isinstance(found, dict) else schema
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def required_of(tool: ToolSpec) -> tuple[str, ...]:
    """Return the parameters that a call must give."""
    schema = tool.parameters
    reference = schema.get("$ref")
    if isinstance(reference, str):
        found = schema.get("$defs", {}).get(reference.rpartition("/")[2])
        schema = found if isinstance(found, dict) else schema
    required = schema.get("required")
    return tuple(name for name in required if isinstance(name, str)) if isinstance(required, list) else ()


def argument(arguments: Mapping[str, Any], key: str) -> Any:
    """Return what *arguments* hold for *key* under any of its names; None if nothing."""
    return next((arguments[name] for name in _PARAMETERS[key] if name in arguments), None)


def _fits(tool: ToolSpec, role: Role) -> bool:
    """Whether we can give all that the tool requires, and it takes all that its role needs."""
    properties = properties_of(tool)
    ours = {name for names in _PARAMETERS.values() for name in names}
    takes_needed = all(any(name in properties for name in _PARAMETERS[key]) for key in _NEEDED[role])
    return takes_needed and all(name in ours for name in required_of(tool))

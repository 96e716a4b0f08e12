"""Who may import whom. The tables are the rule; typing-only and local imports count."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator

import pytest
from _source import FRONT_DOOR, Module, imports, modules, own_imports, parsed

GROUND = {"errors", "limits", "clock", "ids", "faults", "trace", "version"}
UP_TO_RUNTIME = {*GROUND, "machine", "mailbox", "persistence", "actors", "models", "tools", "supervisor", "runtime"}

# Room: the rooms of ours that it may import.
ROOMS: dict[str, set[str]] = {
    **{room: {"errors"} for room in GROUND},
    "machine": GROUND - {"clock"},
    "mailbox": GROUND,
    "persistence": GROUND,
    "actors": {*GROUND, "mailbox"},
    "models": {*GROUND, "machine"},
    "tools": {*GROUND, "machine"},
    "supervisor": {*GROUND, "mailbox", "actors"},
    "runtime": UP_TO_RUNTIME - {"runtime"},
    "orchestrator": {*GROUND, "machine", "models", "tools", "runtime"},
    "http": {*UP_TO_RUNTIME, "orchestrator", FRONT_DOOR},
    "cli": {*UP_TO_RUNTIME, "orchestrator", "http", FRONT_DOOR},
    "__main__": {"cli"},
    "testing": {*UP_TO_RUNTIME, "orchestrator", FRONT_DOOR},
    FRONT_DOOR: {*UP_TO_RUNTIME, "orchestrator"},
}

# Library: the rooms that it is for. One that is not here is not used.
LIBRARIES: dict[str, set[str]] = {
    "msgspec": set(ROOMS),
    "anyio": {"persistence", "models", "tools", "supervisor", "runtime", "orchestrator", "http", "cli", "testing"},
    "aiosqlite": {"persistence"},
    "structlog": {"runtime", "http", "cli"},
    "typer": {"cli"},
    "rich": {"cli"},
    "hypothesis": {"testing"},
    "pytest": {"testing"},
}

# Modules behind a door that others may import, each because it is loaded only when used.
PUBLIC_MODULES = {"persistence.sqlite"}

# A step reads the run, the event and the spec, and nothing else.
BANNED_IN_MACHINE = {
    "asyncio",
    "anyio",
    "time",
    "datetime",
    "random",
    "secrets",
    "os",
    "pathlib",
    "socket",
    "sqlite3",
    "uuid",
    "threading",
    "subprocess",
    "logging",
    "structlog",
    # not named in the design, and no better:
    "concurrent",
    "multiprocessing",
    "io",
    "tempfile",
    "shutil",
    "signal",
    "contextvars",
    "queue",
    "sys",
    "platform",
    "locale",
}
BANNED_CALLS_IN_MACHINE = {"open", "print", "input", "eval", "exec", "globals", "__import__", "import_module"}
MINTED_IDS = {"Ids", "RandomIds", "CountedIds"}


def wrong_rooms(module: Module) -> Iterator[str]:
    for path, found in own_imports(module):
        room = path.split(".")[0] or FRONT_DOOR
        if room != module.room and room not in ROOMS[module.room]:
            yield f"{module.path}:{found.line}: {module.room} may not import {room}"


def past_doors(module: Module) -> Iterator[str]:
    for path, found in own_imports(module):
        if path.split(".")[0] == module.room or not path:
            continue
        hidden = [part for part in (*path.split("."), found.name or "") if part.startswith("_")]
        if hidden:
            yield f"{module.path}:{found.line}: {path} reaches behind a door for {hidden[0]}"
        elif "." in path and path not in PUBLIC_MODULES and not path.startswith("testing."):
            yield f"{module.path}:{found.line}: {path} is no door"


def wrong_libraries(module: Module) -> Iterator[str]:
    for found in imports(module):
        library = found.module.split(".")[0]
        if library == "geartrain" or library in sys.stdlib_module_names:
            continue
        if module.room not in LIBRARIES.get(library, set()):
            yield f"{module.path}:{found.line}: {library} is not for {module.room}"


def impurities(module: Module) -> Iterator[str]:
    for found in imports(module):
        if found.module.split(".")[0] in BANNED_IN_MACHINE:
            yield f"{module.path}:{found.line}: imports {found.module}"
    for path, found in own_imports(module):
        if path == "ids" and (found.name is None or found.name in MINTED_IDS):
            yield f"{module.path}:{found.line}: mints ids; import the derived ones by name"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BANNED_CALLS_IN_MACHINE:
            yield f"{module.path}:{node.lineno}: calls {node.func.id}"


def test_every_room_has_a_row_in_the_table() -> None:
    assert {module.room for module in modules()} <= set(ROOMS)


def test_the_table_has_no_cycle() -> None:
    below: dict[str, set[str]] = dict(ROOMS)

    while below:
        lowest = {room for room, allowed in below.items() if not (allowed - {room}) & set(below)}
        assert lowest, f"a cycle within {sorted(below)}"
        below = {room: allowed for room, allowed in below.items() if room not in lowest}


@pytest.mark.parametrize("rule", [wrong_rooms, past_doors, wrong_libraries])
def test_imports_follow_the_tables(rule) -> None:
    assert [fault for module in modules() for fault in rule(module)] == []


def test_the_machine_touches_nothing_but_its_arguments() -> None:
    machine = [module for module in modules() if module.room == "machine"]

    assert machine
    assert [fault for module in machine for fault in impurities(module)] == []


def test_no_import_in_one_package_runs_in_a_circle_when_first_loaded() -> None:
    code = "import importlib, sys; importlib.import_module(sys.argv[1])"
    rooms = sorted({f"geartrain.{module.room}" for module in modules() if module.is_package and module.name})

    for room in rooms:
        done = subprocess.run([sys.executable, "-c", code, room], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_importing_geartrain_is_light() -> None:
    code = "import sys; from geartrain import *; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert {"aiosqlite", "sqlite3", "structlog", "typer", "rich", "pytest", "hypothesis"}.isdisjoint(loaded)


def test_the_commands_help_loads_no_more_than_the_commands() -> None:
    code = "import sys, geartrain.cli; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert {"asyncio", "anyio", "aiosqlite", "structlog", "geartrain.runtime", "geartrain.machine"}.isdisjoint(loaded)


def test_a_worker_process_loads_no_more_than_the_room_of_tools() -> None:
    code = "import sys, geartrain.tools._process_child; from geartrain import tool; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    rooms = {name.split(".")[1] for name in loaded if name.startswith("geartrain.")}
    assert rooms & {"runtime", "models", "persistence", "actors", "mailbox", "cli"} == set()
    assert {"anyio", "aiosqlite", "structlog", "typer", "rich"}.isdisjoint(loaded)


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("mailbox._sample", "from geartrain.machine import Run"),
        ("mailbox._sample", "from geartrain import clock, actors"),
        ("mailbox._sample", "if TYPE_CHECKING:\n    from geartrain.runtime import Runtime"),
        ("mailbox._sample", "def f():\n    import geartrain.persistence"),
        ("mailbox._sample", "from ..persistence import Entry"),
        ("mailbox._sample", "import_module('geartrain.tools')"),
        ("mailbox._sample", "from geartrain import Agent"),
        ("mailbox._sample", "from geartrain.testing import settle"),
        ("cli._sample", "from geartrain.testing.virtual_time import settle"),
        ("machine._sample", "from geartrain.clock import Clock"),
        ("errors", "from geartrain.limits import Limits"),
    ],
)
def test_the_table_sees_every_way_to_import(room: str, line: str) -> None:
    assert list(wrong_rooms(parsed(line, room)))


@pytest.mark.parametrize(
    "line",
    [
        "from geartrain.persistence._group import Group",
        "from geartrain.persistence import _group",
        "from geartrain.persistence.sqlite._writes import write",
        "import geartrain.mailbox._lanes",
    ],
)
def test_a_way_around_a_door_is_seen(line: str) -> None:
    assert list(past_doors(parsed(line, "runtime._sample")))


@pytest.mark.parametrize("line", ["from geartrain.persistence.sqlite import open_store", "from ._other import x"])
def test_a_public_module_and_the_own_room_are_no_way_around(line: str) -> None:
    assert not list(past_doors(parsed(line, "runtime._sample")))


@pytest.mark.parametrize(
    "line",
    [
        "def f():\n    from datetime import datetime",
        "import os.path",
        "from geartrain.ids import RandomIds",
        "from geartrain import ids",
        "print('x')",
        "open('x')",
    ],
)
def test_an_impure_machine_is_seen(line: str) -> None:
    assert list(impurities(parsed(line, "machine._sample")))


def test_a_library_in_the_wrong_room_is_seen() -> None:
    assert list(wrong_libraries(parsed("import anyio.abc", "mailbox._sample")))
    assert list(wrong_libraries(parsed("import requests", "runtime._sample")))

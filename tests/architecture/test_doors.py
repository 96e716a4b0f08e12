"""One door to each package, and what the front door shows."""

from __future__ import annotations

import ast
import importlib

from _source import Module, modules
from test_imports import PUBLIC_MODULES

import geartrain

# Frozen: a name that is added here is promised, a name that leaves breaks somebody.
FRONT_DOOR_NAMES: list[str] = (
    "UNLIMITED",
    "Actor",
    "ActorGroup",
    "ActorRef",
    "Agent",
    "Allow",
    "Approval",
    "Ask",
    "Backoff",
    "Budget",
    "Change",
    "ChildSpec",
    "Deny",
    "FanOut",
    "GeartrainError",
    "Graph",
    "InternalError",
    "Limits",
    "Note",
    "OfflineModel",
    "Pipeline",
    "Price",
    "ResourceError",
    "RestartLimit",
    "Rule",
    "Rules",
    "RunHandle",
    "RunState",
    "RunView",
    "Runtime",
    "ScriptedModel",
    "Step",
    "StuckRules",
    "Supervisor",
    "ToolContext",
    "Usage",
    "UsageError",
    "open_reader",
    "tool",
)


def exports(module: Module) -> list[str] | None:
    for node in module.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            return list(ast.literal_eval(node.value))
    return None


def test_the_front_door_shows_exactly_what_was_promised() -> None:
    assert sorted(getattr(geartrain, "__all__", [])) == sorted(FRONT_DOOR_NAMES)


def test_every_name_of_the_front_door_is_found_in_its_room() -> None:
    # They are loaded when used, so a name may be promised in one place and forgotten in the other.
    assert [name for name in FRONT_DOOR_NAMES if not hasattr(geartrain, name)] == []
    assert set(FRONT_DOOR_NAMES) <= set(dir(geartrain))


def test_every_package_says_what_it_exports() -> None:
    packages = {module.name: exports(module) for module in modules() if module.is_package and module.name}

    assert {name for name, names in packages.items() if names is None} == set()


def test_every_folder_of_modules_is_a_package() -> None:
    names = {module.name for module in modules() if module.is_package}

    assert {module.name.rpartition(".")[0] for module in modules() if module.name} <= names


def test_what_a_door_promises_is_there_and_public() -> None:
    for module in modules():
        if module.is_package and module.name:
            door = importlib.import_module(f"geartrain.{module.name}")
            names = exports(module) or []
            assert [name for name in names if not hasattr(door, name)] == [], module.path
            assert [name for name in names if name.startswith("_")] == [], module.path
            assert len(names) == len(set(names)), module.path


def test_modules_behind_a_door_start_with_an_underscore() -> None:
    behind = [module.name for module in modules() if "." in module.name and not module.name.startswith("testing.")]
    open_ones = {name for name in behind if not name.rpartition(".")[2].startswith("_")}

    assert open_ones <= PUBLIC_MODULES


def test_no_module_is_named_after_nothing() -> None:
    names = {part.strip("_") for module in modules() for part in module.name.split(".")}

    assert names.isdisjoint({"utils", "util", "common", "helpers", "helper", "misc", "base", "core", "types"})

"""The generated pages are what the commands, the tables and the exceptions say of themselves."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from geartrain.cli import _errors as cli_errors
from geartrain.errors import GeartrainError
from geartrain.machine import HOLDS, KINDS, REASONS, RESULTS

DOCS = Path(__file__).parents[3] / "docs"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_commands_say_now() -> None:
    assert (DOCS / "cli.md").read_text("utf-8") == generator().cli_page(), "stale: run `make docs`"


def test_the_page_has_every_command_and_every_option() -> None:
    text = generator().cli_page()

    for command in ["run", "list", "show", "approve", "deny", "settle", "send", "pause", "resume", "cancel", "replay"]:
        assert f"\n## geartrain {command}" in text
    for option in ("--root DIR", "--write FILE", "--max-turns N", "--app MODULE:ATTR", "--by NAME", "--store PATH"):
        assert f"`{option}`" in text


# Errors that no user meets, and why.
NEVER_MET = {
    "WorkerEnded": "becomes the result of the call that the worker was at",
}


def test_the_page_of_errors_is_what_the_tables_say_now() -> None:
    assert (DOCS / "errors.md").read_text("utf-8") == generator().errors_page(), "stale: run `make docs`"


def test_the_page_of_errors_has_every_code_hold_status_and_kind() -> None:
    text = generator().errors_page()

    for table in (REASONS, HOLDS, RESULTS):
        assert [name for name in table if f"\n| `{name}` |" not in text] == []
    assert [kind for kind in KINDS if f"\n| {kind} |" not in text] == []


def test_the_page_of_errors_has_every_error_that_a_user_can_meet() -> None:
    shown = {kind.__name__ for _, kind in generator().public_errors()}

    def below(kind: type) -> set[str]:
        names = {kind.__name__} if kind.__module__.startswith("geartrain.") else set()
        return names.union(*map(below, kind.__subclasses__()))

    families = {"GeartrainError", "UsageError", "ResourceError", "InternalError"}
    ours = below(GeartrainError) - families - set(NEVER_MET)
    of_the_commands = {
        name for name, found in vars(cli_errors).items() if getattr(found, "__module__", "") == cli_errors.__name__
    }
    assert ours - of_the_commands - shown == set()

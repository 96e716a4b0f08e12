"""The reference of the command line is what the commands say of themselves."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

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

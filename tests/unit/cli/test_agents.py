from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from geartrain.cli._agents import RESEARCHER, cast_of, home_of, researcher
from geartrain.cli._errors import AgentUnknown, AppUnusable, OptionInvalid
from geartrain.limits import Limits
from geartrain.models import ModelNotFound
from geartrain.runtime import default_policy

APP = """
from types import SimpleNamespace
from geartrain import Agent, Deny
one, two = Agent("one"), Agent("two")
agents = [one, two]
def policy(call, run): return Deny()
app = SimpleNamespace(agents=agents, policy=policy)
odd = SimpleNamespace(agents=agents, policy="no")
twice = [one, one]
mixed = [one, 3]
def make(): return (two,)
async def later(): return (one,)
def fails(): raise RuntimeError("no database")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "their_app.py").write_text(APP)
    yield tmp_path
    sys.modules.pop("their_app", None)


def test_without_an_app_there_is_the_researcher(tmp_path: Path) -> None:
    cast = cast_of(None, tmp_path)

    assert cast.for_new_run(None).name == RESEARCHER
    assert cast.policy is default_policy


def test_the_researcher_may_write_only_if_asked(tmp_path: Path) -> None:
    tools = researcher().tools

    assert {name for name, tool in tools.items() if not tool.read_only} == {"write_file"}


@pytest.mark.parametrize(
    ("app", "own"),
    [
        ("their_app:one", ("one",)),
        ("their_app:agents", ("one", "two")),
        ("their_app:app", ("one", "two")),
        ("their_app:make", ("two",)),
        ("their_app", ("one", "two")),
        ("their_app:app.agents", ("one", "two")),
    ],
)
def test_an_app_is_an_agent_or_several_or_what_has_some(folder: Path, app: str, own: tuple[str, ...]) -> None:
    cast = cast_of(app, folder)

    assert cast.own == own
    assert set(cast.agents) == {*own, RESEARCHER}


@pytest.mark.parametrize("app", ["their_app:app", "their_app"])
def test_an_app_brings_its_policy(folder: Path, app: str) -> None:
    assert cast_of(app, folder).policy is sys.modules["their_app"].policy


@pytest.mark.parametrize(
    ("app", "said"),
    [
        ("no_such_module:app", r"No module named 'no_such_module' \(modules are looked for in .*PYTHONPATH"),
        ("their_app:later", "is a coroutine function"),
        ("their_app:nothing", "has no attribute 'nothing'"),
        ("their_app:fails", "RuntimeError: no database"),
        ("their_app:mixed", "found int"),
        ("their_app:twice", "two agents of one name"),
        ("their_app:odd", "its policy is str"),
        ("", "Empty module name"),
    ],
)
def test_an_app_that_cannot_be_used_says_why(folder: Path, app: str, said: str) -> None:
    with pytest.raises(AppUnusable, match=said):
        cast_of(app, folder)


def test_the_way_to_an_app_leads_to_its_folder_from_anywhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cast_of("their_app:app", folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))

    assert home_of("their_app:app", folder) == f"cd {folder} && "
    assert home_of("their_app:app", folder / "elsewhere") == f"PYTHONPATH={folder} "
    assert home_of(None, folder) == ""
    assert home_of("json:tool", folder) == ""


def test_the_project_file_above_names_the_app(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.geartrain]\napp = "their_app:one"\n')
    (folder / "below").mkdir()

    assert cast_of(None, folder / "below").own == ("one",)


@pytest.mark.parametrize("text", ["[tool.geartrain]\napp = 3\n", "not toml", "tool = 3\n"])
def test_a_project_file_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)

    with pytest.raises(AppUnusable, match=r"pyproject\.toml"):
        cast_of(None, tmp_path)


def test_an_app_of_several_agents_needs_a_choice(folder: Path) -> None:
    cast = cast_of("their_app:agents", folder)

    assert cast.for_new_run("two").name == "two"
    assert cast.for_new_run(RESEARCHER).name == RESEARCHER
    with pytest.raises(OptionInvalid):
        cast.for_new_run(None)
    with pytest.raises(AgentUnknown):
        cast.for_new_run("three")


def test_a_model_that_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        cast_of(None, tmp_path, model="huge")


def test_a_run_recorded_with_a_model_that_is_gone_still_has_its_researcher(tmp_path: Path) -> None:
    recorded = msgspec.structs.replace(researcher().spec(Limits()), model="gone")

    assert cast_of(None, tmp_path, recorded=recorded).of_run(RESEARCHER).model.name == "offline"

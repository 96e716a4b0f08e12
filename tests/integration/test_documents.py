"""What the README and the pages of docs/ show is run here, in order, and does what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from documents import ROOT, commands, looks_like, pages, play, snippets

README = ROOT / "README.md"
# The README's two commands set the project up: they are what CI runs, in a clone of its own.
PLAYED = [page for page in pages() if page != README and any(s.kind in ("python", "console") for s in snippets(page))]


@pytest.mark.parametrize("page", PLAYED, ids=lambda page: page.name)
def test_the_snippets_of_a_page_do_what_the_page_says(page: Path, tmp_path: Path) -> None:
    play(page, tmp_path)


def test_every_page_that_shows_code_is_played() -> None:
    assert {page.name for page in PLAYED} >= {"embedding.md", "reliability.md"}


def test_the_readme_shows_the_two_commands_of_the_makefile() -> None:
    (console,) = [snippet for snippet in snippets(README) if snippet.kind == "console"]

    assert [command.split("#")[0].strip() for command, _ in commands(console)] == ["make run", "make test"]


def test_the_example_of_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    (example,) = [snippet for snippet in snippets(README) if snippet.kind == "python"]
    (tmp_path / "README.md").write_text(README.read_text(encoding="utf-8"), encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(
        f"<!-- file: example.py -->\n```python\n{example.text}```\n```console\n$ python example.py\nFINISHED …\n```\n"
    )

    play(page, tmp_path)


def test_the_example_of_the_readme_is_short() -> None:
    (example,) = [snippet for snippet in snippets(README) if snippet.kind == "python"]

    assert len([line for line in example.text.splitlines() if line.strip()]) <= 16


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("```python\nassert 1 == 2\n```\n", "AssertionError"),
        ("```console\n$ exit 3\n```\n", "exit code 3"),
        ("```console\n$ echo one\ntwo\n```\n", "prints"),
        ("```console\n$ echo one\n```\n", "prints"),
        ("```console\necho one\n```\n", "begins with"),
    ],
)
def test_a_page_that_says_something_untrue_is_found(body: str, problem: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(body)

    with pytest.raises(AssertionError) as found:
        play(page, tmp_path)
    assert problem in f"{type(found.value).__name__} {found.value}"


def test_a_page_is_one_program_with_files_waits_and_commands(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nimport asyncio\nawait asyncio.sleep(0)\nnumber = 7\n```\n"
        "<!-- file: own.py -->\n```python\nprint('own')\n```\n"
        "```python\nassert number == 7\n```\n"
        "```console\n$ python own.py && \\\n  echo done\no…\ndone\n```\n"
    )

    play(page, tmp_path)


@pytest.mark.parametrize(
    ("printed", "shown", "same"),
    [("a b c", "a … c", True), ("a\nb\nc", "a\n…\nc", True), ("a c", "a … d", False), ("a.c", "abc", False)],
)
def test_an_ellipsis_stands_for_anything(printed: str, shown: str, same: bool) -> None:
    assert looks_like(printed, shown) is same

"""What the README and the pages of docs/ show as code is code, and the README's example runs as it stands."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_shows_as_python_is_python(page: Path) -> None:
    for block in python_blocks(page):
        ast.parse(block.replace("text=…", "text=''").replace("Usage(…)", "Usage()"))


def test_the_example_of_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    readme = ROOT / "README.md"
    (tmp_path / "README.md").write_text(readme.read_text(encoding="utf-8"), encoding="utf-8")
    (example,) = python_blocks(readme)

    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False
    )

    words = len(readme.read_text(encoding="utf-8").split())
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("FINISHED ")
    assert str(words) in done.stdout


def test_the_imports_that_a_page_shows_are_there() -> None:
    shown = [block for page in PAGES for block in python_blocks(page) if block.startswith("from geartrain")]

    for block in shown:
        exec(compile(block, "imports", "exec"), {})

    assert shown


def test_the_example_of_the_readme_is_short() -> None:
    (example,) = python_blocks(ROOT / "README.md")

    assert len([line for line in example.splitlines() if line.strip()]) <= 16

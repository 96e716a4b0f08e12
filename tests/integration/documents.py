"""The pages of the documentation as programs: each page's snippets run in order, as a reader would run them.

| fence | is |
|---|---|
| `python` | run in the page's own namespace; `await` at the top level is fine |
| `python`, with `<!-- file: NAME -->` above | saved as that file beside the page's others |
| `console` | each `$ command` is run by bash; what is shown below it is what it prints, `…` standing for anything |
| `json`, `text`, `mermaid`, … | looked at by people only |

Names that a page takes for granted (a `run`, a `bank`) come from `tests/documents/PAGE.py`, which runs before it.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PRELUDES = ROOT / "tests" / "documents"
_FENCE = re.compile(r"(?:<!-- file: (?P<file>\S+) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    page: Path
    line: int
    kind: str
    text: str
    file: str = ""

    @property
    def where(self) -> str:
        return f"{self.page.name}:{self.line}"


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs").glob("decisions/*.md"))]


def snippets(page: Path) -> list[Snippet]:
    text = page.read_text(encoding="utf-8")
    return [
        Snippet(page, text.count("\n", 0, found.start("kind")) + 1, found["kind"], found["text"], found["file"] or "")
        for found in _FENCE.finditer(text)
    ]


def commands(snippet: Snippet) -> list[tuple[str, str]]:
    """Return (command, what it prints) of a console snippet; a line that ends with `\\` goes on."""
    found: list[tuple[str, str]] = []
    for line in snippet.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        else:
            assert found, f"{snippet.where}: a console snippet begins with `$ `"
            command, printed = found[-1]
            if command.endswith("\\") and not printed:
                found[-1] = (f"{command}\n{line}", "")
            else:
                found[-1] = (command, f"{printed}{line}\n")
    return found


def looks_like(printed: str, shown: str) -> bool:
    """Whether *printed* is what is *shown*, where `…` stands for anything, also for several lines."""
    pattern = ".*".join(re.escape(part) for part in _plain(shown).split("…"))
    return re.fullmatch(pattern, _plain(printed), re.DOTALL) is not None


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def play(page: Path, folder: Path) -> None:
    """Run a page's snippets in *folder*; raises where one does not do what the page shows."""
    namespace: dict[str, Any] = {"__name__": "page"}
    prelude = PRELUDES / f"{page.stem}.py"
    before = os.getcwd()
    os.chdir(folder)
    try:
        with asyncio.Runner() as runner:
            if prelude.exists():
                _run_python(runner, prelude.read_text(encoding="utf-8"), str(prelude), namespace)
            for snippet in snippets(page):
                _play(runner, snippet, namespace)
    finally:
        os.chdir(before)


def _play(runner: asyncio.Runner, snippet: Snippet, namespace: dict[str, Any]) -> None:
    if snippet.file:
        Path(snippet.file).write_text(snippet.text, encoding="utf-8")
    elif snippet.kind == "python":
        # Line numbers of an error are those of the page.
        _run_python(runner, "\n" * snippet.line + snippet.text, str(snippet.page), namespace)
    elif snippet.kind == "console":
        for command, shown in commands(snippet):
            _run_command(snippet, command, shown)


def _run_python(runner: asyncio.Runner, text: str, name: str, namespace: dict[str, Any]) -> None:
    code = compile(text, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    waiting = eval(code, namespace)
    if inspect.iscoroutine(waiting):
        runner.run(waiting)


def _run_command(snippet: Snippet, command: str, shown: str) -> None:
    paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": paths, "COLUMNS": "120", "NO_COLOR": "1"}
    done = subprocess.run(
        ["bash", "-c", command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, f"{snippet.where}: {command}\nexit code {done.returncode}\n{done.stdout}"
    assert looks_like(done.stdout, shown), f"{snippet.where}: {command}\nprints\n{done.stdout}\nnot\n{shown}"

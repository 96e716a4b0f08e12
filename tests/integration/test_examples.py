"""Each example runs as its own docstring says."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from documents import play

EXAMPLES = Path(__file__).parents[2] / "examples"


@contextlib.contextmanager
def served(store: Path) -> Iterator[str]:
    """Yield the address of the web service, in a process of its own that is stopped as an operator stops it."""
    words = [sys.executable, "-m", "uvicorn", "web_service:app", "--port", "0"]
    environment = {**os.environ, "STORE": str(store), "PYTHONPATH": os.pathsep.join([str(EXAMPLES), *sys.path])}
    process = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        running = next(line for line in process.stderr if "running on" in line)
        yield re.search(r"http://\S+", running).group()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    assert process.returncode in (0, -signal.SIGTERM)


def ask(address: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data=data, headers={k.replace("_", "-"): v for k, v in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def test_the_web_service_answers_approvals_over_its_own_routes_across_a_restart(tmp_path: Path) -> None:
    store = tmp_path / "service.db"
    with served(store) as address:
        _, started = ask(f"{address}/runs", {"text": "Order 17 came broken"}, idempotency_key="ticket-1")
        _, again = ask(f"{address}/runs", {"text": "Order 17 came broken"}, idempotency_key="ticket-1")
    with served(store) as address:
        _, waiting = ask(f"{address}/approvals")
        url = f"{address}/runs/{started['id']}/calls/{waiting[0]['call_id']}"
        _, decided = ask(url, {"approve": True, "by": "ops"})
        twice = ask(url, {"approve": False, "by": "ops"})
        _, shown = ask(f"{address}/runs/{started['id']}")

    assert started["state"] == "SUSPENDED"
    assert again["id"] == started["id"]
    assert [call["run_id"] for call in waiting] == [started["id"]]
    assert decided["answer"] == shown["answer"] == "Your money is on its way."
    assert twice[0] == 409
    assert "FINISHED" in twice[1]["error"]


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_is_run_here(example: Path) -> None:
    assert example.name in Path(__file__).read_text(encoding="utf-8") or example.stem in Path(__file__).read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("name", ["conversation", "by_hand"])
def test_the_commands_in_the_docstring_of_an_example_do_what_it_shows(name: str, tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / f"{name}.py", tmp_path)
    docstring = ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text(encoding="utf-8")), clean=False)
    page = tmp_path / "page.md"
    shown = "\n".join(line.removeprefix("    ") for line in docstring.splitlines() if line.startswith("    "))
    page.write_text(f"```console\n{shown}\n```\n", encoding="utf-8")

    play(page, tmp_path)

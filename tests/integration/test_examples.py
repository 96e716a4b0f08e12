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


@pytest.mark.parametrize("name", ["conversation", "by_hand", "pipeline", "fan_out", "orchestrator"])
def test_the_commands_in_the_docstring_of_an_example_do_what_it_shows(name: str, tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / f"{name}.py", tmp_path)
    docstring = ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text(encoding="utf-8")))
    page = tmp_path / "page.md"
    shown = docstring[docstring.index("\n$ ") + 1 :]
    page.write_text(f"```console\n{shown}\n```\n", encoding="utf-8")

    play(page, tmp_path)


def printed_by(name: str, folder: Path, *arguments: str) -> str:
    words = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), *arguments]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_rate_limiter_spreads_the_calls_of_all_runs(tmp_path: Path) -> None:
    said = printed_by("rate_limiter", tmp_path)

    assert said.count("All three are known.") == 4
    [seconds] = re.findall(r"12 calls of 4 runs in ([\d.]+) s", said)
    assert float(seconds) >= 0.5  # eleven gaps of 50 ms, less what the first call came late


def test_the_aggregator_sums_up_what_a_hundred_have_sent(tmp_path: Path) -> None:
    said = printed_by("aggregator", tmp_path)

    assert said == "".join(f"{what}: 100 times, 495.0 s in all\n" for what in ("fetch", "parse", "store"))


def test_the_notifier_tells_what_each_run_did_in_its_order(tmp_path: Path) -> None:
    said = printed_by("notifier", tmp_path)

    for number in range(3):
        assert f"told: run-{number} run_started\ntold: run-{number} run_finished\n" in said
    assert said.endswith("not told: 0\nthe notifier leaves\n")


KILLED = {
    "desk/rates": "desk/rates goes, desk/quotes goes, desk/rates is up, desk/quotes is up",
    "desk/quotes": "desk/quotes goes, desk/quotes is up",
    "bell": "bell goes, bell is up",
}


@pytest.mark.parametrize("path", KILLED)
def test_whoever_is_killed_takes_with_it_whom_the_strategy_says_and_runs_go_on(path: str, tmp_path: Path) -> None:
    said = printed_by("supervised", tmp_path, path)

    begun, _, later = said.partition("is killed")
    assert re.findall(r"office/(\S+) is up", begun) == ["desk/rates", "desk/quotes", "bell"]
    moves = re.findall(r"    office/(\S+ (?:goes|is up))\n", later.partition("bell: up")[0])
    assert ", ".join(moves) == KILLED[path]
    assert f"office/{path} says hello" in later
    assert "the run: 3 %." in later
    assert re.findall(r"    office/(\S+) goes", said)[-3:] == ["bell", "desk/quotes", "desk/rates"]


def test_what_is_killed_too_often_has_its_supervisor_restarted(tmp_path: Path) -> None:
    said = printed_by("supervised", tmp_path, *["desk/quotes"] * 3)

    assert "crash of office/desk, run: RestartsExhausted" in said
    assert said.count("office/desk/quotes says hello") == 3
    assert "desk: up, restarts: 1" in said


def test_the_examples_are_short() -> None:
    lengths = {example.name: example.read_text("utf-8").count("\n") for example in EXAMPLES.glob("*.py")}

    assert {name: lines for name, lines in lengths.items() if lines > 80} == {}


def test_every_example_is_run_here() -> None:
    here = Path(__file__).read_text(encoding="utf-8")

    assert [example.stem for example in EXAMPLES.glob("*.py") if example.stem not in here] == []

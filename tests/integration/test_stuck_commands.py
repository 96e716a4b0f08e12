"""Runs that do not get on are named by the real command, while another process moves them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(180)]
PROGRAM = Path(__file__).with_name("stuck_program.py")


def command(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "geartrain", *words], capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    path = str(tmp_path_factory.mktemp("stuck") / "runs.db")
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield path, json.loads(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait(30)


def stuck_in(path: str, count: int) -> list[dict[str, Any]]:
    """List until there are so many about which something was done; each listing is a process of its own."""
    until, found = time.monotonic() + 30, list[dict[str, Any]]()
    while sum(bool(run["done"]) for run in found) < count and time.monotonic() < until:
        found = json.loads(command("list", "--stuck", "--json", "--store", path))
    return sorted(found, key=lambda run: str(run["agent"]))


def test_each_run_that_does_not_get_on_is_named_with_its_cause(store: tuple[str, dict[str, str]]) -> None:
    path, runs = store

    found = stuck_in(path, 3)

    about = "4 times in a row the same calls with the same results: look"
    assert [(run["run_id"], run["cause"], run["about"], run["done"]) for run in found] == [
        (runs["listener"], "dwell", "model call of turn 1, attempt 1", "report"),
        (runs["repeater"], "no_progress", about, "report"),
        (runs["waiter"], "dwell", "call t1.c1 of never_answers", "report"),
    ]


def test_a_run_that_waits_says_what_was_sent_what_was_processed_and_why_it_is_stuck(
    store: tuple[str, dict[str, str]],
) -> None:
    path, runs = store
    stuck_in(path, 3)

    shown = command("show", runs["waiter"], "--store", path).splitlines()

    rows = {line.split()[0]: line for line in shown if line.startswith(("sent", "processed", "stuck"))}
    assert "RunCall t1.c1.a1 (never_answers), asked for by event 3" in rows["sent"]
    assert "no answer yet; the newest event is 4, TimerFired" in rows["processed"]
    assert "call t1.c1 of never_answers (done: report)" in rows["stuck"]
    assert any("stuck: dwell: call t1.c1 of never_answers (report)" in line for line in shown)


def test_a_listing_for_people_has_one_line_for_each(store: tuple[str, dict[str, str]]) -> None:
    path, runs = store
    stuck_in(path, 3)

    lines = command("list", "--stuck", "--store", path).splitlines()

    assert sorted(line.split()[0] for line in lines) == sorted(
        runs[name] for name in ("listener", "repeater", "waiter")
    )

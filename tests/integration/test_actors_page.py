"""The page about actors, and the examples it names, do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SNIPPETS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "actors.md").read_text("utf-8"), flags=re.DOTALL)
SAID = {
    "Counter": "5\n",
    "Board": "four\nboard one dropped\nboard two dropped\n2 2\n",
    "Divider": (
        "started\n0.25\nactor 'divider' failed before it answered: ZeroDivisionError('division by zero')\n"
        "stopping\ntold: ZeroDivisionError('division by zero')\nstopped\n"
    ),
    "Purse": "Done.\nDone.\n0 1\n",
}


def run(code: list[str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", *code], cwd=folder, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("snippet", SNIPPETS, ids=list(SAID))
def test_what_the_page_shows_prints_what_it_says(snippet: str, tmp_path: Path) -> None:
    [actor] = re.findall(r"class (\w+)\(Actor\)", snippet)

    assert run(["-c", snippet], tmp_path) == SAID[actor]


def test_the_rate_limiter_spreads_the_calls_of_all_runs(tmp_path: Path) -> None:
    said = run([str(ROOT / "examples" / "rate_limiter.py")], tmp_path)

    assert said.count("All three are known.") == 4
    [seconds] = re.findall(r"12 calls of 4 runs in ([\d.]+) s", said)
    assert float(seconds) >= 0.5  # eleven gaps of 50 ms, less what the first call came late


def test_the_aggregator_sums_up_what_a_hundred_have_sent(tmp_path: Path) -> None:
    said = run([str(ROOT / "examples" / "aggregator.py")], tmp_path)

    assert said == "".join(f"{what}: 100 times, 495.0 s in all\n" for what in ("fetch", "parse", "store"))


def test_the_notifier_tells_what_each_run_did_in_its_order(tmp_path: Path) -> None:
    said = run([str(ROOT / "examples" / "notifier.py")], tmp_path)

    for number in range(3):
        assert f"told: run-{number} run_started\ntold: run-{number} run_finished\n" in said
    assert said.endswith("not told: 0\nthe notifier leaves\n")


def test_the_examples_are_short() -> None:
    for name in ("rate_limiter", "aggregator", "notifier"):
        assert len((ROOT / "examples" / f"{name}.py").read_text("utf-8").splitlines()) < 60

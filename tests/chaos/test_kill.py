"""Runs killed at sampled points, and the harness itself: the short version of what `make chaos` does in full."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import disk
import planted
import pytest

from geartrain.faults import FAULT_POINTS
from geartrain.testing.kill import REFERENCE_RUNS, ForkServer, Played, Point, play_all, points_of

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(120)]

FIRST_KILLS = 8
SECOND_KILLS = 2
# Each process of this run starts another one, which takes as long as four of the others.
FIRST_KILLS_APART = 2
BROKEN_FILES = 8


def name_of(scenario: str) -> str:
    return scenario.rpartition(":")[2]


def wrong(done: Sequence[Played]) -> list[str]:
    return [str(played) for played in done if played.wrong]


@pytest.mark.parametrize("scenario", REFERENCE_RUNS, ids=name_of)
def test_a_run_killed_anywhere_and_again_in_its_recovery_loses_and_repeats_nothing(
    scenario: str, servers: Sequence[ForkServer]
) -> None:
    rng = random.Random(scenario)
    dry = next(play_all([Point(scenario=scenario)], servers))
    count = FIRST_KILLS_APART if name_of(scenario) == "apart" else FIRST_KILLS
    firsts = rng.sample(points_of(dry.reached[0]), count)

    once = list(play_all([Point(scenario=scenario, kills=(first,)) for first in firsts], servers))
    again = [
        Point(scenario=scenario, kills=(*played.point.kills, rng.choice(points_of(played.reached[1]))))
        for played in once[: min(SECOND_KILLS, count // 2)]
        if played.deaths
    ]
    twice = list(play_all(again, servers))

    assert wrong([dry, *once, *twice]) == []
    assert sum(played.deaths for played in once) >= count - 2
    assert sum(played.deaths for played in twice) > len(twice)


def test_the_reference_runs_and_their_recovery_reach_every_fault_point(servers: Sequence[ForkServer]) -> None:
    points = [Point(scenario=scenario, kills=("run.append.after:1",)) for scenario in REFERENCE_RUNS]

    done = list(play_all(points, servers))

    assert {name for played in done for each in played.reached for name in each} >= FAULT_POINTS


@pytest.mark.parametrize(("bug", "number"), planted.BUGS.items(), ids=lambda each: getattr(each, "__name__", None))
def test_the_harness_finds_a_planted_bug(bug, number: str, servers: Sequence[ForkServer]) -> None:
    assert planted.first_finding(bug.__name__, number, servers) is not None


def test_a_store_whose_files_fail_tells_the_truth_and_loses_nothing(breaking: Sequence[ForkServer]) -> None:
    scenario = disk.FULL
    places = disk.faults([*disk.KILLS, *disk.FAULTS], disk.operations(scenario, breaking))
    chosen = random.Random(1).sample(places, BROKEN_FILES)

    done = list(play_all([Point(scenario=scenario, fault=fault) for fault in chosen], breaking))

    assert wrong(done) == []


@pytest.mark.parametrize(("bug", "number"), planted.DISK_BUGS.items(), ids=lambda each: getattr(each, "__name__", None))
def test_the_harness_finds_a_bug_that_takes_a_failing_disk(bug, number: str, breaking: Sequence[ForkServer]) -> None:
    assert planted.first_finding_on_disk(bug.__name__, number, breaking) is not None


def test_a_point_that_was_found_wrong_says_how_to_repeat_it(servers: Sequence[ForkServer]) -> None:
    point = Point(scenario="planted:a_lost_commit")

    played = next(play_all([point], servers))

    assert "python -m geartrain.testing.kill --scenario planted:a_lost_commit" in str(played)


def test_a_users_own_run_is_killed_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from geartrain import Agent, ScriptedModel\n"
        "from geartrain.testing.kill import Scenario\n"
        "def run(ledger):\n"
        "    return Scenario(agent=Agent('mine', model=ScriptedModel(['Yes.'])))\n"
    )
    command = [sys.executable, "-m", "geartrain.testing.kill", "--scenario", "mine:run", "--kill", "effect.end:1"]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ)

    assert (done.returncode, done.stdout) == (0, "mine:run: 1 played, 1 killed, 0 wrong\n"), json.dumps(done.stderr)

"""The long version: every fault point, second kills, every file operation, killed commands. `make chaos` runs it.

Exits with 1 if anything was found, if a planted bug was not found, or if a fault point was never reached.
"""

from __future__ import annotations

import argparse
import platform
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import disk
import planted
from command_kills import examples, kill_example, table

from geartrain.faults import FAULT_POINTS
from geartrain.testing.kill import REFERENCE_RUNS, ForkServer, Played, Point, Sweep, play_all, sweep

HERE = Path(__file__).parent


class Report:
    """What is printed while it goes on, and what it comes to."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.played = self.kills = self.wrong = 0
        self.by_point: Counter[str] = Counter()
        self.reached: Counter[str] = Counter()
        self.tick = 0.0

    def told(self, played: Played) -> None:
        self.played += 1
        self.kills += played.deaths
        for kill, end in zip(played.point.kills, played.ends, strict=False):
            if end == -9:
                self.by_point[kill.partition(":")[0]] += 1
        for each in played.reached:
            self.reached.update(each)
        if played.wrong:
            self.wrong += 1
            self.say(f"WRONG {played}")
        self.shown(f"{self.played} played, {self.kills} killed, {self.wrong} wrong ")

    def shown(self, line: str) -> None:
        """Show how far it is, on a terminal."""
        if sys.stderr.isatty() and time.monotonic() - self.tick > 0.5:
            self.tick = time.monotonic()
            sys.stderr.write(f"\r{line} ")

    def say(self, line: str) -> None:
        print(f"[{time.monotonic() - self.begun:5.0f} s] {line}", flush=True)

    def counted(self, what: str, done: Sequence[Played], begun: float) -> None:
        deaths, bad = sum(played.deaths for played in done), sum(bool(played.wrong) for played in done)
        each = 1000 * (time.monotonic() - begun) / max(1, len(done))
        self.say(f"{what}: {len(done)} played, {deaths} killed, {bad} wrong, {each:.0f} ms each")


Find = Callable[[str, str, Sequence[ForkServer]], str | None]


def find_planted(report: Report, bugs: planted.Bugs, find: Find, servers: Sequence[ForkServer]) -> None:
    """Look for each planted bug; a harness that misses one proves nothing."""
    for bug, number in bugs.items():
        found = find(bug.__name__, number, servers)
        report.wrong += found is None
        report.say(f"planted bug {bug.__name__}: {'NOT FOUND' if found is None else found}")


def kill_everywhere(report: Report, servers: Sequence[ForkServer], how: Sweep) -> None:
    """Kill the reference runs at each fault point, and at a share of them once more in the recovery."""
    for scenario in REFERENCE_RUNS:
        begun = time.monotonic()
        done = sweep(scenario, how, servers=servers, told=report.told)
        report.counted(f"fault points of {scenario.rpartition(':')[2]}", done, begun)
    for name in sorted(FAULT_POINTS):
        report.say(f"  {name}: reached {report.reached[name]} times, killed there {report.by_point[name]} times")
    for name in sorted(FAULT_POINTS - set(report.reached)):
        report.wrong += 1
        report.say(f"  {name}: NEVER REACHED")


def break_files(report: Report, servers: Sequence[ForkServer], step: int, seed: int) -> None:
    """Kill at each file operation of the run with approvals, and break each *step*-th one of all runs.

    The seed says with which one it begins: so *step* seeds together take them all.
    """
    for scenario in REFERENCE_RUNS:
        count = disk.operations(scenario, servers)
        full = scenario == disk.FULL
        for mode in (*disk.KILLS, *disk.FAULTS):
            begun = time.monotonic()
            every = 1 if full and mode in disk.KILLS else step
            places = disk.faults([mode], count, every, 1 + seed % every)
            done = []
            for played in play_all([Point(scenario=scenario, fault=place) for place in places], servers):
                report.told(played)
                done.append(played)
            what = f"{mode}, k each {every}. of {count} file operations of {scenario.rpartition(':')[2]}"
            report.counted(what, done, begun)


def kill_commands(report: Report, count: int, seed: int) -> None:
    """Kill the command lines of the examples at random moments, two at a time."""
    with ThreadPoolExecutor(2) as threads:
        done = list(threads.map(lambda name: kill_example(name, count, seed, report.shown), examples()))
    report.wrong += sum(bool(found.wrong) for found in done)
    report.say(f"commands killed:\n{table(done)}")


def take_the_disk_away(report: Report, seconds: float) -> None:
    """Let the store's files fail for a while under a thousand live runs; in a process of its own."""
    script = [sys.executable, str(HERE / "outage.py"), "--seconds", f"{seconds:g}"]
    done = subprocess.run(script, stdout=subprocess.PIPE, text=True, check=False)
    report.wrong += done.returncode != 0
    report.say(f"outage: {done.stdout.strip().splitlines()[-1]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--second", type=float, default=0.05, help="share of points that get second kills")
    parser.add_argument("--step", type=int, default=4, help="every how many-th file operation is broken")
    parser.add_argument("--commands", type=int, default=50, help="how many commands of each example are killed")
    parser.add_argument("--outage", type=float, default=30.0, help="seconds for which the files cannot be written")
    parser.add_argument("--only", action="append", help="planted, points, files, commands, outage; all if left out")
    options = parser.parse_args()
    report = Report()
    report.say(f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, seed {options.seed}")
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        servers = [stack.enter_context(ForkServer(path=[HERE])) for _ in range(options.servers)]

        def files() -> None:
            if not disk.available():
                report.say("file operations: left out, there is no gcc")
                return
            library = disk.build(Path(folder))
            behind = [stack.enter_context(disk.server(library, [HERE])) for _ in range(options.servers)]
            find_planted(report, planted.DISK_BUGS, planted.first_finding_on_disk, behind)
            break_files(report, behind, options.step, options.seed)

        parts: dict[str, Callable[[], None]] = {
            "planted": lambda: find_planted(report, planted.BUGS, planted.first_finding, servers),
            "points": lambda: kill_everywhere(report, servers, Sweep(second_share=options.second, seed=options.seed)),
            "files": files,
            "commands": lambda: kill_commands(report, options.commands, options.seed),
            "outage": lambda: take_the_disk_away(report, options.outage),
        }
        for name, part in parts.items():
            if not options.only or name in options.only:
                part()
    report.say(f"{report.played} runs played, {report.kills} processes killed in them, {report.wrong} wrong")
    return min(report.wrong, 1)


if __name__ == "__main__":
    sys.exit(main())

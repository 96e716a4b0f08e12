"""Kill a run anywhere, open its store again, and see that nothing was lost and nothing was done twice.

A run is played in a process of its own, which kills itself at the n-th time that a named fault point is reached
(`geartrain.faults.FAULT_POINTS`); another process goes on, and may be killed too, until one gets to the end. After
each death and at the end the store is held against the ledger that tools and clients have written outside of it.

Your own agents can be played: write a function that takes a `Ledger` and returns a `Scenario`, and name it.

```
python -m geartrain.testing.kill --scenario my_agents:ordering --sweep
python -m geartrain.testing.kill --scenario my_agents:ordering --kill store.commit.before:3 --kill run.recovered:1
```
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from geartrain.testing._kill_child import (
    FILE_OPERATIONS,
    GAVE_UP,
    LEDGER,
    OUT_OF_PATIENCE,
    REPLAY_DIFFERS,
    SHIM,
    STORE,
    Order,
    reached,
    said,
)
from geartrain.testing._kill_runs import (
    LedgerModel,
    Make,
    Scenario,
    apart,
    approval,
    handed,
    outside,
    plain,
    reads,
    write,
)
from geartrain.testing._kill_server import ForkServer, serve
from geartrain.testing._kill_trees import planned, steered, team
from geartrain.testing.ledger import Death, StoreSeen, check, read_ledger, read_store

__all__ = [
    "FILE_OPERATIONS",
    "REFERENCE_RUNS",
    "SHIM",
    "ForkServer",
    "LedgerModel",
    "Make",
    "Played",
    "Point",
    "Scenario",
    "Sweep",
    "main",
    "play",
    "play_all",
    "points_of",
    "sweep",
]

_RUNS: Final = (plain, reads, write, approval, apart, outside, handed, team, planned, steered)
REFERENCE_RUNS: Final = tuple(f"{make.__module__}:{make.__name__}" for make in _RUNS)

# A process that gets no kill must get to the end; one more may be needed after it gave up on a failing store.
_SPARE_ATTEMPTS: Final = 2
# How long a process is watched whose store fails for good.
_LASTING_SECONDS: Final = 1.0
_KILLED: Final = -signal.SIGKILL
_HUNG: Final = -signal.SIGALRM


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A scenario and where its processes are killed, first to last (`name:n`).

    *fault* is given to the first process instead: what its file operations meet, for a server with a shim. A process
    that does not get to the end within *patience_seconds* is stuck.
    """

    scenario: str
    kills: tuple[str, ...] = ()
    fault: str = ""
    patience_seconds: float = 10.0

    def __str__(self) -> str:
        return " ".join([self.scenario, *self.kills, self.fault]).strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What became of a point: what is wrong, how its processes ended, and which fault points each reached."""

    point: Point
    wrong: tuple[str, ...]
    ends: tuple[int, ...]
    reached: tuple[dict[str, int], ...]
    seconds: float
    said: str = ""

    @property
    def deaths(self) -> int:
        """How many processes were killed."""
        return self.ends.count(_KILLED)

    def __str__(self) -> str:
        repeat = " ".join(f"--kill {kill}" for kill in self.point.kills)
        line = f"python -m geartrain.testing.kill --scenario {self.point.scenario} {repeat}".rstrip()
        line += f" (file operations: {self.point.fault})" if self.point.fault else ""
        return "\n".join([line, *(f"  {found}" for found in self.wrong), self.said.rstrip()]).rstrip()


@dataclass(slots=True)
class _Play:
    folder: Path
    deaths: list[Death] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    reached: list[dict[str, int]] = field(default_factory=list)

    def look(self, *, final: bool) -> StoreSeen:
        """Hold the store against the ledger."""
        store = read_store(self.folder / STORE)
        self.wrong += check(store, read_ledger(self.folder / LEDGER), self.deaths, final=final)
        return store


def play(server: ForkServer, point: Point, folder: Path) -> Played:
    """Play *point* in the empty *folder*."""
    begun, played, over = time.monotonic(), _Play(folder), False
    faults = [point.fault] if point.fault else []
    for attempt in range(1, len(point.kills) + len(faults) + _SPARE_ATTEMPTS):
        order = Order(
            scenario=point.scenario,
            folder=str(folder),
            attempt=attempt,
            kill=point.kills[attempt - 1] if attempt <= len(point.kills) else "",
            fault=faults[attempt - 1] if attempt <= len(faults) else "",
            patience_seconds=_LASTING_SECONDS if _lasts(point.fault) and attempt == 1 else point.patience_seconds,
        )
        end = server.run(order)
        played.ends.append(end)
        played.reached.append(reached(folder, attempt))
        over = end == 0
        store = played.look(final=over)
        if over or played.wrong:
            break
        if end == _HUNG:
            played.wrong.append("(12) the process hung")
        elif end == REPLAY_DIFFERS:
            played.wrong.append("(13) a replay differs from what is stored")
        elif end == OUT_OF_PATIENCE and not _lasts(order.fault):
            played.wrong.append(f"(12) the run did not come to an end within {order.patience_seconds:g} s")
        elif end not in (_KILLED, OUT_OF_PATIENCE) and not (end == GAVE_UP and order.fault):
            played.wrong.append(f"(14) the process ended with {end}")
        played.deaths.append(Death.of(store, len(read_ledger(folder / LEDGER))))
    if not over and not played.wrong:
        played.wrong.append("(12) the run did not come to an end")
    return Played(
        point=point,
        wrong=tuple(dict.fromkeys(played.wrong)),
        ends=tuple(played.ends),
        reached=tuple(played.reached),
        seconds=time.monotonic() - begun,
        said=said(folder, len(played.ends)) if played.wrong else "",
    )


def _lasts(fault: str) -> bool:
    return fault.endswith("-")


def points_of(reached: dict[str, int]) -> list[str]:
    """Return every point (`name:n`) that a process with these counts can be killed at."""
    return [f"{name}:{n}" for name, count in sorted(reached.items()) for n in range(1, count + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """How to sweep: which share of the points is taken, and at which share a second kill follows in the recovery.

    *second_of* is how many of the recovery's own points are then taken, at most.
    """

    share: float = 1.0
    second_share: float = 0.05
    second_of: int = 1_000
    seed: int = 1


def sweep(
    scenario: str,
    how: Sweep,
    *,
    servers: Sequence[ForkServer],
    told: Callable[[Played], None] = lambda _: None,
) -> list[Played]:
    """Kill *scenario* wherever it can be killed, once, and at a share of the points once more while it recovers."""
    rng = random.Random(f"{how.seed} {scenario}")  # noqa: S311 - a choice of points, no secret
    dry = next(play_all([Point(scenario=scenario)], servers))
    told(dry)
    firsts = [point for point in points_of(dry.reached[0]) if rng.random() < how.share]
    done = [dry]
    seconds: list[Point] = []
    for played in play_all([Point(scenario=scenario, kills=(first,)) for first in firsts], servers):
        done.append(played)
        told(played)
        if played.deaths and rng.random() < how.second_share:
            recovery = points_of(played.reached[1]) if len(played.reached) > 1 else []
            rng.shuffle(recovery)
            kills = [(*played.point.kills, second) for second in recovery[: how.second_of]]
            seconds += [Point(scenario=scenario, kills=each) for each in kills]
    for played in play_all(seconds, servers):
        done.append(played)
        told(played)
    return done


def play_all(points: Iterable[Point], servers: Sequence[ForkServer]) -> Iterator[Played]:
    """Play points on all *servers* at once, and yield what became of each, in the order of *points*."""
    free = list(servers)

    def one(point: Point) -> Played:
        server = free.pop()
        folder = Path(tempfile.mkdtemp(prefix="killed-", dir=_fast_folder()))
        try:
            return play(server, point, folder)
        finally:
            free.append(server)
            shutil.rmtree(folder, ignore_errors=True)

    with ThreadPoolExecutor(len(servers)) as threads:
        yield from threads.map(one, points)


def _fast_folder() -> str | None:
    # On a memory disk the file operations are the same and a sync costs nothing; the death of a process loses
    # nothing there that it would not lose elsewhere.
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a folder of our own is made in it


def main(arguments: Sequence[str] | None = None) -> int:
    """Play one point or sweep; return how many went wrong, at most 1."""
    parser = argparse.ArgumentParser(
        prog="python -m geartrain.testing.kill", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--scenario", action="append", help="module:function; the reference runs if left out")
    parser.add_argument("--kill", action="append", default=[], help="name:n, where a process dies; may be repeated")
    parser.add_argument("--sweep", action="store_true", help="kill wherever it can be killed")
    parser.add_argument("--seed", type=int, default=1, help="which points get a second kill")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve()
        return 0
    wrong = 0
    with ForkServer(path=["."]) as server:
        for scenario in options.scenario or REFERENCE_RUNS:
            if options.sweep:
                done = sweep(scenario, Sweep(seed=options.seed), servers=[server])
            else:
                done = list(play_all([Point(scenario=scenario, kills=tuple(options.kill))], [server]))
            bad = [played for played in done if played.wrong]
            wrong += len(bad)
            deaths = sum(played.deaths for played in done)
            lines = [f"{scenario}: {len(done)} played, {deaths} killed, {len(bad)} wrong", *map(str, bad)]
            sys.stdout.write("\n".join(lines) + "\n")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())

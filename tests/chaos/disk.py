"""The disk that fails: building the shim, and which file operations of a run are broken how."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from geartrain.testing.kill import FILE_OPERATIONS, REFERENCE_RUNS, SHIM, ForkServer, Point, play_all

SOURCE = Path(__file__).with_name("shim.c")

# Mode, and what comes behind the number k of the operation: nothing (once), how long it lasts, `!` (the process dies
# when it is told that something is not stored).
KILLS = ("kill@{k}", "half@{k}")
FAULTS = ("eio@{k}", "enospc@{k}", "short@{k}", "eio@{k}-{later}", "enospc@{k}-", "eio@{k}-", "eio@{k}!", "enospc@{k}!")
LATER = 3
# The run whose processes are killed at each file operation.
FULL = next(name for name in REFERENCE_RUNS if name.endswith(":approval"))


def available() -> bool:
    return shutil.which("gcc") is not None


def build(folder: Path) -> Path:
    """Compile the shim into *folder*."""
    library = folder / "shim.so"
    command = ["gcc", "-O1", "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return library


def server(library: Path, path: Sequence[str | Path] = ()) -> ForkServer:
    """Start a fork server behind the shim."""
    return ForkServer(path=path, environment={"LD_PRELOAD": str(library), SHIM: str(library)})


def operations(scenario: str, servers: Sequence[ForkServer]) -> int:
    """Return how many file operations the run makes when nothing is broken."""
    dry = next(play_all([Point(scenario=scenario, fault="count@0")], servers))
    assert not dry.wrong, dry
    return dry.reached[0][FILE_OPERATIONS]


def faults(modes: Sequence[str], count: int, step: int = 1, first: int = 1) -> list[str]:
    """Return every *step*-th place in *count* operations from *first* on, broken in each of *modes*."""
    return [mode.format(k=k, later=k + LATER) for mode in modes for k in range(first, count + 1, step)]

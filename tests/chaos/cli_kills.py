"""The command line killed from outside, at moments that nobody chose."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from geartrain.testing.ledger import check, read_store

QUESTION = "What is this project, how is it tested, and which limits does it set?"
COMMAND = (sys.executable, "-m", "geartrain")
REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class CliKill:
    """One killed process: when, what was found of its run afterwards, and what went wrong."""

    seconds: float
    left: str
    wrong: tuple[str, ...]


class CliKiller:
    """Kills `geartrain run` in *folder*, resumes what it left, and replays it."""

    def __init__(self, folder: Path, seed: int = 1) -> None:
        self.folder = folder
        self.rng = random.Random(seed)
        self.root = folder / "root"
        self.root.mkdir()
        shutil.copytree(REPOSITORY / "docs", self.root / "docs")
        shutil.copy(REPOSITORY / "README.md", self.root)
        self.number = 0
        self.before, self.during = self._measured()

    def _measured(self) -> tuple[float, float]:
        """Return how long the process lives before its store appears, and from then on, when nobody kills it."""
        begun = time.monotonic()
        process, _ = self._start()
        appeared = self._wait_for_store()
        assert process.wait(60) == 0, self._said()
        return appeared - begun, time.monotonic() - appeared

    @property
    def store(self) -> Path:
        return self.folder / f"runs.{self.number}.db"

    def _start(self) -> tuple[subprocess.Popen[bytes], float]:
        command = [*COMMAND, "run", QUESTION, "--root", str(self.root), "--store", str(self.store), "--json"]
        with (self.folder / "said").open("wb") as said:
            return subprocess.Popen(command, stdout=said, stderr=said), time.monotonic()

    def _said(self) -> str:
        return (self.folder / "said").read_text("utf-8", "replace")

    def _wait_for_store(self) -> float:
        until = time.monotonic() + 30
        while not self.store.exists() and time.monotonic() < until:
            time.sleep(0.001)
        return time.monotonic()

    def kill(self) -> CliKill:
        """Start a run, kill its process at a random moment (mostly while the store is open), and go on with it."""
        self.number += 1
        process, begun = self._start()
        if self.rng.random() < 0.2:
            time.sleep(self.rng.uniform(0, self.before))
        else:
            self._wait_for_store()
            time.sleep(self.rng.uniform(0, self.during))
        process.kill()
        process.wait()
        return self._gone_on_with(time.monotonic() - begun)

    def _gone_on_with(self, seconds: float) -> CliKill:
        seen = read_store(self.store)
        wrong = check(seen, [])
        left = ", ".join(f"{run.state} at {run.last_seq}" for run in seen.runs.values()) or "no run"
        if not self.store.exists():
            return CliKill(seconds, "no store", tuple(wrong))
        for run_id in self._listed(wrong, set(seen.runs)):
            self._call(wrong, "resume", run_id, "--quiet")
            self._call(wrong, "replay", run_id)
        wrong += check(read_store(self.store), [], final=True)
        return CliKill(seconds, left, tuple(dict.fromkeys(wrong)))

    def _listed(self, wrong: list[str], stored: set[str]) -> list[str]:
        listed = [run["id"] for run in json.loads(self._call(wrong, "list", "--json") or "[]")]
        if set(listed) != stored:
            wrong.append(f"list shows {listed}, the store holds {sorted(stored)}")
        return listed

    def _call(self, wrong: list[str], *arguments: str) -> str:
        command = [*COMMAND, *arguments, "--store", str(self.store)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            wrong.append(f"{' '.join(arguments)} exited with {done.returncode}: {done.stderr[-500:]}")
        return done.stdout

"""The examples of trees of runs, started by their own command lines and killed at moments that nobody chose.

    python tests/chaos/command_kills.py --kills 50 --seed 1 --only fan_out

Each round plays an example by commands, as a person would: `geartrain run …` as its docstring has it, then whatever the
store asks for (`work`, `resume`, `approve`), until its root has ended. A process of the round is killed at a random
moment of all that, and in every second round so is the one that goes on. Then everything must be as if nobody had been
killed: the answer, the runs of the tree, their results and what they have written, each once; every run of it is
replayed, nothing is left alive, and nothing waits for anybody. Exits with 1 if anything else was found.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import contextlib
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from geartrain.runtime import open_reader
from geartrain.testing._ledger_calls import requested
from geartrain.testing.ledger import Death, StoredRun, StoreSeen, check, read_store

REPOSITORY = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "geartrain")
# So often a command goes on with a tree that nobody kills any more, before it is given up.
COMMANDS_MOST = 12
STORE = "runs.db"


@dataclass(frozen=True)
class Example:
    """An example as its docstring shows it: what is made first, and the words behind `geartrain` that start it."""

    name: str
    setup: str
    words: tuple[str, ...]

    @property
    def app(self) -> tuple[str, ...]:
        """The words that say where the agents are, for every later command."""
        place = self.words.index("--app") if "--app" in self.words else len(self.words)
        return self.words[place : place + 2]


def example(name: str) -> Example:
    """Return an example by its docstring: all commands before `geartrain run` make its files."""
    path = REPOSITORY / "examples" / f"{name}.py"
    lines = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").splitlines()
    commands = [line[2:] for line in lines if line.startswith("$ ")]
    place = next(number for number, line in enumerate(commands) if line.startswith("geartrain run "))
    lexer = shlex.shlex(commands[place], posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    end = next((number for number, word in enumerate(words) if set(word) <= set(";|&")), len(words))
    kept = words[1:end]
    kept[kept.index("--store") + 1] = STORE
    return Example(name, "\n".join([f"cp {shlex.quote(str(path))} .", *commands[:place]]), tuple(kept))


LIBRARIAN = Example(
    "librarian",
    f"mkdir root && cp -r {shlex.quote(str(REPOSITORY))}/{{docs,README.md}} root",
    (
        "run",
        "What is this project, how is it tested, and which limits does it set?",
        "--root",
        "root",
        "--store",
        STORE,
    ),
)


def examples() -> dict[str, Example]:
    """Return all that is played, by name."""
    return {each.name: each for each in [LIBRARIAN, *map(example, ("pipeline", "fan_out", "orchestrator"))]}


# What a tree looks like, whatever its runs are called and in whatever order a plan has set them to work.
Shape = Mapping[str, object]


def shape(store: StoreSeen) -> Shape:
    """Return what became of a tree: of each run, by the calls that lead to it, its end and the results of its calls."""
    return {
        path: (run.state, _answer(run), sorted(_results(run)))
        for path, run in sorted((path_of(store, run), run) for run in store.runs.values())
    }


def path_of(store: StoreSeen, run: StoredRun) -> str:
    """Return the names of the calls that lead to a run."""
    start = run.of_type("RunStarted")[0].body
    parent = store.runs.get(run.parent)
    return "" if parent is None else f"{path_of(store, parent)}/{_name(parent, start['parent']['call_id'])}"


def _name(run: StoredRun, call: str) -> str:
    """Return the step of a plan that a call is, or else the tool that is called, with its arguments."""
    asked = requested(run)[call]
    return asked.get("id") or f"{asked['tool']} {asked['arguments']}"


def _answer(run: StoredRun) -> str:
    return next((reply.body.get("text", "") for reply in reversed(run.of_type("ModelReplied"))), "")


def _results(run: StoredRun) -> Iterator[tuple[str, str, str]]:
    for event in run.of_type("ToolFinished", "SubAgentEnded"):
        if event.body.get("verdict") != "not_done":
            yield _name(run, event.body["call_id"]), event.type, event.body.get("text", "")


@dataclass
class Round:
    """One tree from its start to its end, over the processes of as many commands as it takes."""

    example: Example
    folder: Path
    rng: random.Random
    wrong: list[str] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    said: str = ""
    seconds: list[float] = field(default_factory=list)
    # How long the first command took until its store was there.
    birth_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        subprocess.run(["bash", "-ec", self.example.setup], cwd=self.folder, check=True, timeout=60)

    @property
    def store(self) -> Path:
        return self.folder / STORE

    def play(self, *moments: tuple[float, float]) -> None:
        """Play it, and kill a process at each of these *moments*: seconds before and after the birth of the store."""
        waiting = list(moments)
        for _ in range(COMMANDS_MOST + len(moments)):
            words = self.next_words(read_store(self.store))
            if words is None:
                self.look()
                return
            if self._run(words, waiting[0] if waiting else None):
                waiting.pop(0)
        self.wrong.append(f"the tree has not ended after {COMMANDS_MOST} commands: {self.said}")

    def next_words(self, store: StoreSeen) -> tuple[str, ...] | None:
        """Return what a person would do next, or None if there is nothing to do."""
        roots = [run for run in store.runs.values() if not run.parent]
        if not roots:
            return self.example.words
        if len(roots) > 1:
            self.wrong.append(f"{len(roots)} roots")
        root = roots[0]
        if all(run.ended for run in store.runs.values()) and not store.sent:
            return None
        asked = [
            f"{run.run_id}/{hold[9:-1]}" if run is not root else hold[9:-1]
            for run in store.runs.values()
            for hold in run.holds
            if hold.startswith("approval(")
        ]
        works = any(run.live for run in store.runs.values()) or bool(store.sent)
        steps = [("work",), ("resume", root.run_id, "--quiet")] if works or not asked else []
        steps += [("approve", root.run_id, call, "--quiet") for call in asked]
        return (*self.rng.choice(steps), *self.example.app, "--store", STORE)

    def _run(self, words: Sequence[str], moment: tuple[float, float] | None) -> bool:
        """Run a command, and return whether it was killed at that moment."""
        begun = time.monotonic()
        process = subprocess.Popen(
            [*COMMAND, *words],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        killed = False
        if moment is not None:
            killed = self._dies(process, moment)
        elif not self.birth_seconds:
            self._wait_for_store(process)
            self.birth_seconds = time.monotonic() - begun
        try:
            out, problems = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            out, problems = process.communicate()
            self.wrong.append(f"{words[0]} did not come to an end: {problems[-500:]}")
        self.seconds.append(time.monotonic() - begun)
        self.said = f"{' '.join(words)} → {process.returncode}: {out[-300:]}{problems[-500:]}"
        self._none_is_left(process.pid)
        if process.returncode == -signal.SIGKILL:
            store = read_store(self.store)
            self.deaths.append(Death.of(store))
            self.left.append(_left(store))
            self.wrong += check(store, [], self.deaths)
        elif process.returncode not in (0, 3) or "Traceback" in problems:
            self.wrong.append(self.said)
        return killed and process.returncode == -signal.SIGKILL

    def _dies(self, process: subprocess.Popen[str], moment: tuple[float, float]) -> bool:
        before, after = moment
        if not after:
            time.sleep(before)
        else:
            self._wait_for_store(process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(after)
        process.send_signal(signal.SIGKILL)
        return True

    def _wait_for_store(self, process: subprocess.Popen[str]) -> None:
        while not self.store.exists() and process.poll() is None:
            time.sleep(0.001)

    def _none_is_left(self, group: int) -> None:
        until = time.monotonic() + 5.0
        while time.monotonic() < until:
            try:
                os.killpg(group, 0)
            except ProcessLookupError:
                return
            time.sleep(0.01)
        os.killpg(group, signal.SIGKILL)
        self.wrong.append("a process of the command outlived it")

    def look(self) -> None:
        """Look at the tree that has ended."""
        self.wrong += check(read_store(self.store), [], self.deaths, final=True)
        self.wrong += asyncio.run(_replayed(self.store))

    def files(self) -> dict[str, str]:
        """Return what is written in the folder beside the store, whatever the runs are called."""
        store = read_store(self.store)
        names = {run.run_id: path_of(store, run) for run in store.runs.values()}
        found = {}
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and not path.name.startswith(STORE) and "__pycache__" not in path.parts:
                text = path.read_text("utf-8")
                for run_id, name in names.items():
                    text = text.replace(run_id, name)
                found[str(path.relative_to(self.folder))] = "\n".join(sorted(text.splitlines()))
        return found


def _left(store: StoreSeen) -> str:
    if not store.runs:
        return "nothing"
    states = Counter(run.state for run in store.runs.values() if not run.ended)
    ended = sum(run.ended for run in store.runs.values())
    return ", ".join([*(f"{n} {state}" for state, n in sorted(states.items())), *([f"{ended} ended"] if ended else [])])


async def _replayed(store: Path) -> list[str]:
    wrong = []
    async with open_reader(store) as reader:
        for run in await reader.list(limit=10_000):
            report = await reader.replay(run.id)
            if report.difference is not None or report.events != run.seq:
                wrong.append(f"the replay of {run.id} differs: {report}")
    return wrong


@dataclass
class Found:
    """What the rounds of one example came to."""

    name: str
    rounds: int = 0
    kills: int = 0
    left: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


class Killer:
    """Plays one example again and again, each time killed at other moments."""

    def __init__(self, example: Example, folder: Path, seed: int) -> None:
        self.example, self.folder, self.seed = example, folder, seed
        self.found = Found(example.name)
        clean = self._round(0)
        clean.play()
        assert not clean.wrong, clean.wrong
        self.found.seconds = sum(clean.seconds)
        self.birth = clean.birth_seconds
        self.shape, self.files = shape(read_store(clean.store)), clean.files()
        shutil.rmtree(clean.folder)

    def _round(self, number: int) -> Round:
        return Round(
            self.example, self.folder / str(number), random.Random(f"{self.seed} {self.example.name} {number}")
        )

    def kill(self) -> None:
        """Play one round."""
        found = self.found
        found.rounds += 1
        played = self._round(found.rounds)
        played.play(*self._moments(played.rng))
        if not played.wrong and shape(read_store(played.store)) != self.shape:
            played.wrong.append(f"the tree is another one: {_difference(self.shape, shape(read_store(played.store)))}")
        if not played.wrong and played.files() != self.files:
            played.wrong.append(f"the files are others: {_difference(self.files, played.files())}")
        found.kills += len(played.deaths)
        found.left.update(played.left)
        where = f"seed {self.seed}, round {found.rounds} (left: {'; '.join(played.left)})"
        found.wrong += [f"{where}: {each}" for each in dict.fromkeys(played.wrong)]
        shutil.rmtree(played.folder)

    def _moments(self, rng: random.Random) -> Iterator[tuple[float, float]]:
        """Yield when processes die: one in five while it starts, the others anywhere in the length of a clean run."""
        for _ in range(rng.choice((1, 2))):
            early = rng.random() < 0.2
            yield (rng.uniform(0, self.birth), 0.0) if early else (0.0, rng.uniform(0.001, self.length))

    @property
    def length(self) -> float:
        """How long a clean run takes from the birth of its store on."""
        return self.found.seconds - self.birth


def _difference(expected: Shape, seen: Shape) -> str:
    keys = [key for key in {**expected, **seen} if expected.get(key) != seen.get(key)]
    told = (f"{key!r}: {str(seen.get(key))[:300]}, not {str(expected.get(key))[:300]}" for key in keys[:3])
    return "; ".join([f"{len(keys)} differ", *told])


def kill_example(name: str, kills: int, seed: int, told: Callable[[str], None]) -> Found:
    """Play an example until so many of its processes were killed."""
    with tempfile.TemporaryDirectory() as folder:
        killer = Killer(examples()[name], Path(folder), seed)
        found = killer.found
        while found.kills < kills:
            killer.kill()
            told(f"{name}: {found.kills} killed in {found.rounds} rounds, {len(found.wrong)} wrong")
    return found


def table(done: Sequence[Found]) -> str:
    """Return what was done to each example, in what state the dead have left it, and what was found wrong."""
    lines = [f"{'example':12} {'clean run':>9} {'rounds':>6} {'killed':>6} {'wrong':>5}"]
    for found in done:
        lines.append(f"{found.name:12} {found.seconds:7.1f} s {found.rounds:6} {found.kills:6} {len(found.wrong):5}")
        lines += [f"    {count:3} left {what}" for what, count in found.left.most_common(8)]
        lines += [f"  WRONG {each}" for each in found.wrong]
    return "\n".join(lines)


def main() -> int:
    """Kill each example so often, print a table, and return 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50, help="how many processes of each example (default 50)")
    parser.add_argument("--seed", type=int, default=1, help="which moments (default 1)")
    parser.add_argument("--only", action="append", choices=examples(), help="an example; all if left out")
    options = parser.parse_args()
    done = [
        kill_example(name, options.kills, options.seed, lambda line: print(line, flush=True))
        for name in options.only or examples()
    ]
    print(f"\n{table(done)}")
    return int(any(found.wrong for found in done))


if __name__ == "__main__":
    sys.exit(main())

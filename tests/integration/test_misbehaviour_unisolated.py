"""What harms others where it runs is told, or set apart: tools without the isolation that they need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from geartrain.testing.misbehaviour import BAD_TOOLS

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(120)]

# Some that block the loop cannot be told while they do: they let nobody run Python, or what they take is the machine's.
UNTOLD = {
    "spin_in_c": "lets no other thread run Python",
    "allocate_until_killed": "takes all of the memory",
    "allocate_in_children": "leaves processes behind",
    "start_processes_without_end": "leaves processes behind",
    "flood_the_output": "writes to the output of the tests, and ends",
    "return_a_lot": "ends at once",
    "send_garbage": "depends on which connections there are",
    "send_nonsense_frames": "depends on which connections there are",
    "block_for_a_moment": "ends before the limit of a second",
}
TOLD = [bad.name for bad in BAD_TOOLS.values() if bad.blocks_loop and not bad.harms_others and bad.name not in UNTOLD]

BLOCKED = """
import asyncio, os, sys
from geartrain import Runtime
from geartrain.testing.misbehaviour import BAD_TOOLS

def told(records):
    for record in records:
        if record.event == "loop_stalled":
            print(record.run_id, record.payload["place"], *record.payload["stack"], flush=True)
            os._exit(0)

async def main():
    agent = BAD_TOOLS[sys.argv[1]].agent(isolation="task")
    async with Runtime.open("runs.db", agents=[agent], observers=[told]) as runtime:
        await (await runtime.start(agent, "go", run_id="bad")).wait_ended()
        print("it ended", flush=True)

asyncio.run(main())
"""


def test_what_blocks_the_loop_is_named_with_its_place_while_it_does(tmp_path: Path) -> None:
    processes = {}
    for name in TOLD:
        (tmp_path / name).mkdir()
        processes[name] = subprocess.Popen(
            [sys.executable, "-c", BLOCKED, name],
            cwd=tmp_path / name,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    try:
        # Their standard input stays open meanwhile: one of them reads it.
        said = {name: process.stdout.readline() for name, process in processes.items() if process.stdout}
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()

    assert [name for name, text in said.items() if name not in text and "_sleep_for_ever" not in text] == []
    assert [name for name, text in said.items() if not text.startswith("bad /")] == []
    assert len(said) >= 7


# Two of them, each of which takes some starts of the command; a third one is in the tests of `geartrain work`.
KILLERS = ("exit_as_if_well", "segmentation_fault")
OTHERS = 98

APP = f"""
from types import SimpleNamespace
from geartrain import Agent, Allow, ScriptedModel, tool
from geartrain.models import answer, call
from geartrain.testing.misbehaviour import BAD_TOOLS

@tool(read_only=True)
async def look() -> str:
    "Look."
    return "seen"

healthy = Agent("healthy", model=ScriptedModel([[call("look")], [call("look")], answer("well")]), tools=[look])
bad = [BAD_TOOLS[name].agent(isolation="thread") for name in {KILLERS!r}]
app = SimpleNamespace(agents=[healthy, *bad], policy=lambda *_: Allow())
"""

BEGIN = f"""
import asyncio
from app import app
from geartrain import Runtime

async def main():
    async with Runtime.open("runs.db", agents=app.agents, policy=app.policy, recover="none") as runtime:
        runtime._host.node.closing = True  # stored and not begun
        for name in {KILLERS!r}:
            await runtime.start(name, "go", run_id=f"bad-{{name}}")
        for number in range({OTHERS}):
            await runtime.start("healthy", "go", run_id=f"healthy-{{number}}")

asyncio.run(main())
"""


class Service:
    """A store with runs that have not begun, and the command that works on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "app.py").write_text(APP)
        path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        self.environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": path}
        self.python("-c", BEGIN)

    def python(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def work(self) -> bool:
        """Work on all runs, and say whether the process has lived to say so."""
        done = self.python("-m", "geartrain", "work", "--app", "app:app", "--store", "runs.db", "--json", "-q")
        return bool(done.stdout)

    def runs(self) -> dict[str, dict[str, Any]]:
        listed = self.python("-m", "geartrain", "list", "--json", "--all", "--store", "runs.db", "--limit", "1000")
        return {run["id"]: run for run in json.loads(listed.stdout)}


def test_runs_that_kill_the_process_are_set_apart_and_all_others_finish(tmp_path: Path) -> None:
    service = Service(tmp_path)

    starts = 1
    while not service.work():
        starts += 1
        assert starts < 20
    runs = service.runs()

    bad = {name: runs[f"bad-{name}"] for name in KILLERS}
    assert {run_id: run["state"] for run_id, run in runs.items() if run_id.startswith("healthy-")} == {
        f"healthy-{number}": "FINISHED" for number in range(OTHERS)
    }
    assert {name: (run["state"], run["holds"]) for name, run in bad.items()} == dict.fromkeys(
        KILLERS, ("SUSPENDED", ["quarantined"])
    )
    # Twice with all of them, twice alone with each, and then without; a process may die before the other has begun.
    assert 0 <= starts - (2 + 2 * len(KILLERS) + 1) <= len(KILLERS)

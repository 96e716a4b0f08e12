"""Programs with process tools: tools of the main script, and how workers end with the program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.real_time

PROGRAM = Path(__file__).with_name("process_programs.py")

UNGUARDED = """
import asyncio
from pathlib import Path
from geartrain import Agent, Allow, Runtime, ScriptedModel, tool
from geartrain.machine import RequestedCall
from geartrain.persistence import MemoryJournal

@tool(read_only=True, isolation="process")
def add(a: int, b: int) -> int:
    return a + b

async def main():
    print("started", flush=True)
    call = RequestedCall(tool="add", arguments='{"a": 1, "b": 2}')
    agent = Agent("worker", model=ScriptedModel([(call,), "done"]), tools=[add])
    async with Runtime.open(MemoryJournal(), agents=[agent]) as runtime:
        run = await runtime.start(agent, "go")
        await run.wait_ended()
        print(*[entry.event.text async for entry in run.events() if hasattr(entry.event, "verdict")])

asyncio.run(main())
"""


def output_of(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=30, check=False)
    return done.stdout + done.stderr


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A program in a session of its own, with which a terminal would have no more to do than with any other."""
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.005)


@pytest.mark.parametrize("start", [[str(PROGRAM)], ["-m", "process_programs"]], ids=["script", "module"])
def test_a_tool_of_the_main_script_is_found(start: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROGRAM.parent)

    assert output_of(*start, "name_of_the_module", "{}") == "ok __mp_main__\n"


def test_a_program_that_starts_itself_again_in_its_worker_is_told_what_to_do(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(UNGUARDED)

    output = output_of(str(script))

    assert output.count("started") == 1
    assert 'open it below `if __name__ == "__main__":`' in output


def test_a_tool_of_an_interactive_session_is_refused() -> None:
    output = output_of("-c", UNGUARDED)

    assert "is defined in an interactive session, where no worker process can find it" in output


def test_workers_and_what_they_have_started_end_with_a_program_that_is_killed(tmp_path: Path) -> None:
    arguments = f'{{"folder": "{tmp_path}"}}'

    with running(str(PROGRAM), "hang", arguments) as program:
        until(lambda: len(os.listdir(tmp_path)) == 2)
        below = [child.pid for child in psutil.Process(program.pid).children(recursive=True)]
        program.kill()
        until(lambda: not any(alive(pid) for pid in below))

    assert len(below) == 3  # the warden, the worker, and what that has started
    assert {int(name) for name in os.listdir(tmp_path)} < set(below)


def test_an_interrupt_from_the_terminal_reaches_no_worker(tmp_path: Path) -> None:
    arguments = f'{{"folder": "{tmp_path}"}}'

    with running(str(PROGRAM), "finish", arguments) as program:
        until((tmp_path / "at-work").exists)
        os.killpg(program.pid, signal.SIGINT)
        assert program.stdout is not None
        heard = program.stdout.readline()
        (tmp_path / "finish").touch()
        output = program.communicate(timeout=20)[0]

    assert (heard, output) == ("interrupted\n", "ok finished\n")

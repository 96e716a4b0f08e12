"""Ctrl-C and SIGTERM at a real command, whatever its tool does: the process ends in time, and no run ends with it."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_processes import Command, CommandServer
from processes import Starvation

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(60)]

GRACE = 5.0
# Besides what was promised: two cores on which eight processes end at once.
SLACK = 0.7

APP = '''
import asyncio, threading, time
from pathlib import Path
from types import SimpleNamespace
from geartrain import Agent, Allow, ScriptedModel, tool
from geartrain.models import answer, call
from geartrain.testing.misbehaviour import BAD_TOOLS


def agent(name, bad, **options):
    return own(BAD_TOOLS[bad].tool(name=name, timeout_seconds=600, **options))


def sign(name: str) -> str:
    """Say that the next call is the bad one."""
    Path(name).touch()
    return "signed"


@tool(read_only=True, timeout_seconds=600)
async def in_a_pool() -> str:
    """Block a thread of the event loop's own pool."""
    await asyncio.to_thread(time.sleep, 90)
    return "never"


@tool(read_only=True, timeout_seconds=600)
async def leave_a_thread() -> str:
    """Leave a thread that is no daemon, and wait."""
    threading.Thread(target=time.sleep, args=(90,)).start()
    await asyncio.sleep(90)
    return "never"


def own(made):
    first = tool(name="sign")(sign)
    replies = [[call("sign", name=made.name)], [call(made.name)], answer("never")]
    return Agent(made.name, model=ScriptedModel(replies), tools=[first, made])


agents = [
    agent("stubborn", "swallow_cancel_always"),
    agent("stubborn_write", "swallow_cancel_always", read_only=False),
    agent("slow_to_clean", "clean_up_for_long"),
    agent("on_a_thread", "block_for_long"),
    agent("on_the_loop", "block_for_long", isolation="task"),
    agent("spinning", "spin", isolation="task"),
    own(in_a_pool),
    own(leave_a_thread),
]
app = SimpleNamespace(agents=agents, policy=lambda *_: Allow())
'''
NAMES = (
    "stubborn",
    "stubborn_write",
    "slow_to_clean",
    "on_a_thread",
    "on_the_loop",
    "in_a_pool",
    "leave_a_thread",
    "spinning",
)
# Where the event loop stands still nothing can be closed in order.
BLOCKED = ("on_the_loop", "spinning")


@pytest.fixture(scope="module")
def server() -> Iterator[CommandServer]:
    with tempfile.TemporaryDirectory() as folder:
        made = CommandServer(Path(folder))
        yield made
        made.close()


class World:
    """A folder with the agents in it, in which commands are run."""

    def __init__(self, folder: Path, server: CommandServer) -> None:
        self.folder = folder
        self._server = server
        (folder / "bad.py").write_text(APP)

    def start(self, *words: str) -> Command:
        return Command(self._server.address, words, self.folder, {**os.environ, "XDG_STATE_HOME": str(self.folder)})

    @contextmanager
    def in_the_middle(self) -> Iterator[dict[str, Command]]:
        """A command for each agent, each with a store of its own, in the middle of the bad call."""
        commands: dict[str, Command] = {}
        try:
            for name in NAMES:  # the last one takes a processor for itself
                words = ("run", "go", "--app", "bad:app", "--agent", name, "--store", f"{name}.db")
                commands[name] = self.start(*words)
                if name == NAMES[-2]:
                    self._wait_for_signs(commands)
            self._wait_for_signs(commands)
            with Starvation() as starvation:  # the sign is given by the call before
                time.sleep(0.3)
            time.sleep(starvation.allowance)
            yield commands
        finally:
            for command in commands.values():
                command.close()

    def _wait_for_signs(self, commands: dict[str, Command]) -> None:
        until = time.monotonic() + 30
        while not all((self.folder / name).exists() for name in commands):
            assert time.monotonic() < until
            assert [command.output for command in commands.values() if command.poll() is not None] == []
            time.sleep(0.02)

    def state_of(self, name: str) -> str:
        command = self.start("list", "--json", "--store", f"{name}.db")
        try:
            command.wait()
            [run] = json.loads(command.output[0])
        finally:
            command.close()
        return str(run["state"])


def ended(commands: dict[str, Command], seconds: float) -> dict[str, int | None]:
    """The exit codes of those that end within *seconds* of a machine that is theirs."""
    began = time.monotonic()
    with Starvation() as starvation:
        while any(command.poll() is None for command in commands.values()):
            if time.monotonic() - began > seconds + starvation.allowance:
                break
            time.sleep(0.01)
    return {name: command.poll() for name, command in commands.items()}


@pytest.fixture
def world(tmp_path: Path, server: CommandServer) -> World:
    return World(tmp_path, server)


def test_a_signal_ends_the_process_within_the_grace_and_a_second_and_ends_no_run(
    world: World,
) -> None:
    numbers = {name: (signal.SIGINT, signal.SIGTERM)[place % 2] for place, name in enumerate(NAMES)}

    with world.in_the_middle() as commands:
        for name, command in commands.items():
            command.send_signal(numbers[name])
        codes = ended(commands, GRACE + 1 + SLACK)
        errors = {name: command.output[1] for name, command in commands.items()}

    assert codes == {name: 128 + number for name, number in numbers.items()}
    assert [name for name, text in errors.items() if "geartrain resume r-" not in text] == []
    assert [name for name, text in errors.items() if "stopped at once" in text] == list(BLOCKED)
    states = {world.state_of(name) for name in ("stubborn", "stubborn_write", "on_the_loop")}
    assert states <= {"EXECUTE_TOOL", "SUSPENDED"}


def test_a_second_signal_ends_the_process_within_a_second(world: World) -> None:
    with world.in_the_middle() as commands:
        for command in commands.values():
            command.send_signal(signal.SIGINT)
        time.sleep(1.0)  # two that come together are one
        for command in commands.values():
            if command.poll() is None:  # some need no second one
                command.send_signal(signal.SIGINT)
        codes = ended(commands, 1 + SLACK)

    assert codes == dict.fromkeys(NAMES, 130)

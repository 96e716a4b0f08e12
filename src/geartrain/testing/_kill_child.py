"""What runs in the process that is killed: a client which opens a store, drives one run, and writes what it is told."""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import importlib
import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from geartrain import faults
from geartrain.errors import EventRefused, GeartrainError
from geartrain.limits import Limits, Unlimited
from geartrain.persistence import CommitUnknown, StoreFailed
from geartrain.runtime import OpenCall, RunHandle, Runtime
from geartrain.testing._kill_runs import Make, Scenario
from geartrain.testing.ledger import Ledger

STORE: Final = "runs.db"
LEDGER: Final = "ledger.jsonl"
RUN_ID: Final = "r-killed"
FILE_OPERATIONS: Final = "file operations"
SHIM: Final = "GEARTRAIN_CHAOS_SHIM"
SHIM_MODES: Final = ("off", "count", "kill", "half", "eio", "enospc", "short")
GAVE_UP: Final = 5
REPLAY_DIFFERS: Final = 6
FAILED: Final = 7
OUT_OF_PATIENCE: Final = 8

# Short, so that a process in which the store fails for good is given up soon.
LIMITS: Final = Limits(grace_seconds=0.5)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What one process is to do: play *scenario* in *folder*, and die at the fault point *kill* (`name:n`).

    *fault* is what its file operations meet, where the server was started with a shim in front of the C library
    (`SHIM` names it): `mode@k` at the k-th, `mode@k-` from the k-th on, `mode@k-m` from the k-th to the m-th.
    With a `!` behind it the process dies as soon as its client is told that something is not stored.
    """

    scenario: str
    folder: str
    attempt: int = 1
    kill: str = ""
    fault: str = ""
    limit_seconds: float = 20.0
    patience_seconds: float = 10.0


class KillSwitch:
    """Counts how often each fault point is reached, and kills the process at the n-th time at one of them."""

    def __init__(self, kill: str, report: Path) -> None:
        name, _, number = kill.partition(":")
        self._name: Final = name
        self._number: Final = int(number or 0)
        self._report: Final = report
        self._guard: Final = threading.Lock()
        self._reached: Final[Counter[str]] = Counter()

    def __call__(self, name: str, _subject: str) -> None:
        """Take note of a fault point; called on any thread."""
        with self._guard:
            self._reached[name] += 1
            if name == self._name and self._reached[name] == self._number:
                self.write()
                os.kill(os.getpid(), signal.SIGKILL)

    def write(self, file_operations: int = 0) -> None:
        """Leave behind what was reached."""
        if file_operations:
            self._reached[FILE_OPERATIONS] = file_operations
        self._report.write_text(json.dumps(self._reached), "utf-8")


def load_scenario(name: str, ledger: Ledger) -> Scenario:
    """Return the scenario that the function *name* (`module:function`) makes."""
    module, _, function = name.partition(":")
    make: Make = getattr(importlib.import_module(module), function)
    return make(ledger)


def run_child(order: Order) -> int:
    """Do what *order* says in this process and return its exit code, unless it is killed before."""
    folder = Path(order.folder)
    with (folder / f"stderr.{order.attempt}").open("w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    # The default action of the alarm ends the process: a run that hangs is a finding, not a hanging harness.
    signal.setitimer(signal.ITIMER_REAL, order.limit_seconds)
    faulthandler.dump_traceback_later(order.limit_seconds * 0.9)
    ledger = Ledger(folder / LEDGER)
    switch = KillSwitch(order.kill, folder / f"reached.{order.attempt}.json")
    scenario = load_scenario(order.scenario, ledger)
    faults.install(switch)
    operations = _arm(order.fault)
    client = Client(scenario, ledger, order)
    code = asyncio.run(client.drive(folder / STORE))
    switch.write(operations())
    return code


def _arm(fault: str) -> Callable[[], int]:
    """Have the shim meet file operations with *fault*; return what counts them."""
    if not fault:
        return lambda: 0
    shim = ctypes.CDLL(os.environ[SHIM])
    mode, _, numbers = fault.rstrip("!").partition("@")
    first, dash, last = numbers.partition("-")
    end = int(last) if last else (2**40 if dash else int(first))
    shim.shim_arm(SHIM_MODES.index(mode), ctypes.c_long(int(first)), ctypes.c_long(end))
    count: Callable[[], int] = shim.shim_count
    return count


class Client:
    """Drives one run to its end, playing the person too; writes into the ledger whatever it is told."""

    def __init__(self, scenario: Scenario, ledger: Ledger, order: Order) -> None:
        self._scenario: Final = scenario
        self._ledger: Final = ledger
        self._order: Final = order
        self._tries = 0

    async def drive(self, store: Path) -> int:
        """Open the store, have the run end, replay it, close the store; return an exit code."""
        scenario = self._scenario
        try:
            async with Runtime.open(store, agents=[scenario.agent], policy=scenario.policy, limits=LIMITS) as runtime:
                try:
                    async with asyncio.timeout_at(asyncio.get_running_loop().time() + self._order.patience_seconds):
                        return await self._play(runtime)
                except TimeoutError:
                    return OUT_OF_PATIENCE
        except GeartrainError as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            return GAVE_UP if self._order.fault else FAILED

    async def _play(self, runtime: Runtime) -> int:
        handle = await self._started(runtime)
        while not (snapshot := await handle.wait_at_rest()).ended:
            self._ledger.write("told", handle.id, id="", seq=snapshot.seq, state=snapshot.state)
            if snapshot.awaits_reply:
                await self._reply(handle, snapshot.turn_count + 1)
            tree = await handle.tree()
            poor = [run for run in tree.walk() if any(hold.startswith("budget") for hold in run.holds)]
            if not (tree.open_calls or poor or snapshot.awaits_reply):
                return FAILED  # suspended, and nobody can do anything about it
            for call in tree.open_calls:
                await self._answer(await runtime.get(call.run_id), call)
            for run in poor:
                await self._raise_budget(await runtime.get(run.id))
        tokens, now = snapshot.tree_usage.total_tokens, snapshot
        self._ledger.write(
            "told", handle.id, id="", seq=now.seq, state=now.state, answer=now.answer, tree_tokens=tokens
        )
        return await self._replayed(runtime)

    async def _started(self, runtime: Runtime) -> RunHandle:
        while True:
            run_id = RUN_ID if not self._order.fault else self._fresh(RUN_ID)
            try:
                known = await self._known(runtime)
                handle = known or await runtime.start(self._scenario.agent, self._scenario.input, run_id=run_id)
            except (StoreFailed, CommitUnknown) as error:
                await self._not_stored(run_id, "", error)
                continue
            self._ledger.write("told", handle.id, id="", seq=1)
            return handle

    async def _known(self, runtime: Runtime) -> RunHandle | None:
        """Return the run that an earlier process has started, if there is one."""
        root = next((run for run in await runtime.list(limit=1_000) if run.parent is None), None)
        return await runtime.get(root.id) if root is not None else None

    async def _answer(self, handle: RunHandle, call: OpenCall) -> None:
        """Approve what waits for approval, do what is to be done outside, settle a doubt by what the ledger says."""
        by = self._scenario.decided_by
        name = f"{call.waits_for}.{call.call_id}.{call.since:.6f}"

        async def acted(event_id: str) -> int:
            match call.waits_for:
                case "approval":
                    digest = call.arguments_digest
                    return await handle.approve(call.call_id, by=by, arguments_digest=digest, event_id=event_id)
                case "answer":
                    self._do_outside(call)
                    return await handle.answer_call(call.call_id, "it was done", by=by, event_id=event_id)
                case _:
                    return await self._settled(handle, call, event_id)

        await self._act(handle.id, name, acted)

    async def _reply(self, handle: RunHandle, turn: int) -> None:
        """Take the model's turn as the scenario says."""
        entry, by = self._scenario.replies[turn - 1], self._scenario.decided_by
        text, calls = (entry, ()) if isinstance(entry, str) else ("", entry)

        async def acted(event_id: str) -> int:
            return await handle.reply(text, by=by, calls=calls, turn=turn, event_id=event_id)

        await self._act(handle.id, f"reply.{turn}", acted)

    async def _raise_budget(self, handle: RunHandle) -> None:
        """Give a sub-agent's run as many turns again as it had; its parent pays, and is the one that stores it."""
        now = await handle.snapshot()
        budget, turns = now.budget, now.budget.max_turns
        assert not isinstance(turns, Unlimited), "nothing else runs out in a scenario"

        async def acted(event_id: str) -> int:
            more = msgspec.structs.replace(budget, max_turns=2 * turns)
            return await handle.raise_budget(more, by=self._scenario.decided_by, event_id=event_id)

        await self._act(now.parent, f"raise.{turns}", acted)

    async def _act(self, run_id: str, name: str, act: Callable[[str], Awaitable[int]]) -> None:
        event_id = self._fresh(name) if self._order.fault else name
        try:
            seq = await act(event_id)
        except EventRefused:
            return  # somebody was faster: the process that was killed before it was told
        except (StoreFailed, CommitUnknown) as error:
            await self._not_stored(run_id, event_id, error)
            return
        self._ledger.write("told", run_id, id=event_id, seq=seq)

    def _do_outside(self, call: OpenCall) -> None:
        """Do what a call of an external tool asks for, unless it was done and nobody was told that this is known."""
        told = any(
            line.what == "told" and line.more.get("id", "").startswith(f"answer.{call.call_id}.")
            for line in self._ledger.lines()
        )
        if told or not self._ledger.has("start", call.id):
            with self._ledger.effect(call.id, "outside", json.loads(call.arguments)):
                pass

    async def _settled(self, handle: RunHandle, call: OpenCall, event_id: str) -> int:
        by = self._scenario.decided_by
        if self._ledger.has("start", f"{handle.id}/{call.call_id}"):
            return await handle.settle(call.call_id, by=by, done=True, text="it was done", event_id=event_id)
        return await handle.settle(call.call_id, by=by, not_done="run", event_id=event_id)

    def _fresh(self, name: str) -> str:
        self._tries += 1
        return f"{name}.{self._order.attempt}.{self._tries}"

    async def _not_stored(self, run_id: str, event_id: str, error: GeartrainError) -> None:
        what = "unknown" if isinstance(error, CommitUnknown) else "failed"
        self._ledger.write(what, run_id, id=event_id, error=str(error))
        if self._order.fault.endswith("!"):
            os._exit(GAVE_UP)
        await asyncio.sleep(0.05)

    async def _replayed(self, runtime: Runtime) -> int:
        for run in await runtime.list(limit=1_000):
            report = await runtime.replay(run.id)
            if report.difference is not None or report.events != run.seq or report.state != run.state:
                sys.stderr.write(f"replay of {run.id}: {report}; seen: {run.seq} {run.state}\n")
                return REPLAY_DIFFERS
        return 0


def reached(folder: Path, attempt: int) -> dict[str, int]:
    """Return how often the process of that attempt reached each fault point."""
    try:
        found: dict[str, int] = json.loads((folder / f"reached.{attempt}.json").read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found


def said(folder: Path, attempt: int) -> str:
    """Return the end of what the process of that attempt printed."""
    path = folder / f"stderr.{attempt}"
    return path.read_text("utf-8", "replace")[-4_000:] if path.exists() else ""


def child_main(order: Order) -> Any:
    """Run in the forked process; never returns."""
    code = 70
    try:
        code = run_child(order)
    except BaseException as error:  # noqa: BLE001 - the end of the process: whatever it was, the harness must see it
        import traceback  # noqa: PLC0415 - only here

        traceback.print_exception(error)
        sys.stderr.flush()
    finally:
        os._exit(code)

"""What people do to a run from the command line: each act finds the run, drives it to rest, and says how it rests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from geartrain.cli._agents import Cast, cast_of
from geartrain.cli._approver import Approver
from geartrain.cli._drive import Driven, Job, drive
from geartrain.cli._errors import CallNotChosen, OptionInvalid
from geartrain.cli._outcome import SUSPENDED, command_line, exit_code, next_steps, reasons, summary
from geartrain.cli._screen import Screen
from geartrain.cli._stores import Index, Place, find_run, store_to_run_in
from geartrain.ids import RandomIds
from geartrain.machine import AgentSpec, Budget, BudgetRaised, HoldKind, RunStarted, RunState
from geartrain.runtime import OpenCall, RunHandle, RunReader, RunSnapshot, Runtime, open_reader

_RESUMABLE = {HoldKind.PAUSED, HoldKind.QUARANTINED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and for whom a command works: what all commands that move a run have in common."""

    screen: Screen
    folder: Path
    index: Index
    store: Path | None
    app: str | None
    by: str

    def options(self, place: Place) -> list[str]:
        """Return the options that a later command needs to find the same run and the same agents."""
        store = ["--store", str(place.path)] if place.how == "named" else []
        return [*store, *(["--app", self.app] if self.app is not None else [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A new run: what is asked, of whom, about which folder, and where the report goes."""

    question: str
    agent: str | None = None
    root: Path
    write: str | None = None
    model: str | None = None
    max_turns: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """A run as it is stored before anything is done to it, and the spec recorded for it."""

    place: Place
    snapshot: RunSnapshot
    spec: AgentSpec | None
    budget: Budget


async def start(setting: Setting, request: Request) -> int:
    """Start a run and drive it to rest; return the exit code."""
    context: dict[str, str] = {"root": _root(request.root)}
    if request.write is not None:
        context["write"] = _write(request.write, context["root"])
    cast = cast_of(setting.app, setting.folder, model=request.model)
    agent = cast.for_new_run(request.agent)
    if request.model is not None and agent.name in cast.own:
        raise OptionInvalid("--model", f"agent {agent.name!r} brings its own model")
    budget = agent.budget
    if request.max_turns is not None:
        budget = msgspec.structs.replace(budget, max_turns=request.max_turns)
    place = store_to_run_in(setting.store, setting.folder)
    setting.index.note(place.path)
    run_id = RandomIds().mint("r")

    async def act(runtime: Runtime) -> None:
        setting.screen.tell(f"run {run_id}", "bold")
        await runtime.start(
            agent, request.question, run_id=run_id, budget=budget, principal=setting.by, context=context
        )

    return conclude(setting, place, await drive(_job(setting, place, run_id, cast), act), run_id)


def _root(root: Path) -> str:
    if not root.is_dir():
        raise OptionInvalid("--root", f"{str(root)!r} is no folder")
    return _storable("--root", str(root.resolve()))


def _storable(option: str, path: str) -> str:
    """Return *path*, which is stored with the run as text."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise OptionInvalid(option, f"{path!r} is not valid text, so it cannot be stored with the run") from None
    return path


def _write(given: str, root: str) -> str:
    """Return the report's path relative to the root; what the file tools would refuse is refused here already."""
    path = Path(given)
    if path.is_absolute():
        resolved = path.parent.resolve() / path.name
        if not resolved.is_relative_to(root):
            raise OptionInvalid("--write", f"{given!r} is not below the root {root!r}")
        path = resolved.relative_to(root)
    if ".." in path.parts or not path.name or given.endswith("/"):
        raise OptionInvalid("--write", f"must name a file below the root, without '..', got {given!r}")
    if (Path(root) / path).is_dir():
        raise OptionInvalid("--write", f"{given!r} is a folder")
    return _storable("--write", str(path))


async def find(setting: Setting, given: str) -> Found:
    """Return a run from its id, or the beginning of it."""
    place, run_id = await find_run(given, setting.store, setting.folder, setting.index)
    if place.how == "known":
        setting.screen.tell(f"store {place.path}", "dim")
    async with open_reader(place.path) as reader:
        snapshot = await reader.snapshot(run_id)
        return Found(place, snapshot, await reader.spec(snapshot.spec), await _budget(reader, run_id))


async def _budget(reader: RunReader, run_id: str) -> Budget:
    """Return the budget in force: the last one that was given."""
    budget = Budget()
    async for entry in reader.events(run_id):
        if isinstance(entry.event, RunStarted | BudgetRaised):
            budget = entry.event.budget
    return budget


async def decide(
    setting: Setting,
    given: str,
    call_id: str | None,
    *,
    approved: bool,
    reason: str = "",
    arguments: str | None = None,
    remember: bool = False,
) -> int:
    """Approve or deny a call; return the exit code."""
    found = await find(setting, given)
    verb = "approve" if approved else "deny"
    if found.snapshot.ended:
        return _is_over(setting, found, verb)
    call = _chosen(setting, found, call_id, HoldKind.APPROVAL, f"which call to {verb}? it must be waiting for approval")

    async def act(handle: RunHandle) -> None:
        if not approved:
            await handle.deny(call.call_id, by=setting.by, reason=reason)
            return
        scope: Literal["", "run"] = "run" if remember else ""
        await handle.approve(
            call.call_id,
            by=setting.by,
            reason=reason,
            arguments=arguments,
            arguments_digest=call.arguments_digest,
            remember=scope,
        )

    return await _do(setting, found, act)


async def settle(
    setting: Setting, given: str, call_id: str | None, *, done: bool, not_done: Literal["", "run", "skip"], text: str
) -> int:
    """Settle a doubt; return the exit code."""
    found = await find(setting, given)
    if found.snapshot.ended:
        return _is_over(setting, found, "settle")
    call = _chosen(setting, found, call_id, HoldKind.IN_DOUBT, "which call to settle? it must be in doubt")
    return await _do(
        setting,
        found,
        lambda handle: handle.settle(call.call_id, by=setting.by, done=done, not_done=not_done, text=text),
    )


async def send(setting: Setting, given: str, text: str) -> int:
    """Say something to a run; return the exit code."""
    found = await find(setting, given)
    if found.snapshot.ended:
        return _is_over(setting, found, "hear")
    return await _do(setting, found, lambda handle: handle.send(text, by=setting.by))


async def pause(setting: Setting, given: str, reason: str) -> int:
    """Pause a run; return the exit code."""
    found = await find(setting, given)
    if found.snapshot.ended:
        return _is_over(setting, found, "pause")
    return await _do(setting, found, lambda handle: handle.pause(by=setting.by, reason=reason), asks=False)


async def cancel(setting: Setting, given: str, reason: str) -> int:
    """Cancel a run; return the exit code."""
    found = await find(setting, given)
    if found.snapshot.ended:
        return _is_over(setting, found, "cancel")
    # A run whose agent is gone can still be got rid of.
    return await _do(setting, found, lambda handle: handle.cancel(reason, by=setting.by), asks=False, needs_agent=False)


async def resume(setting: Setting, given: str, budget: dict[str, int | float]) -> int:
    """Go on with a run that was left in the middle, paused or out of budget; return the exit code."""
    found = await find(setting, given)
    snapshot = found.snapshot
    if snapshot.ended:
        return _is_over(setting, found, "resume")
    kinds = {hold.partition("(")[0] for hold in snapshot.holds}
    suspended = snapshot.state == RunState.SUSPENDED
    if suspended and not (kinds & _RESUMABLE) and not (budget and HoldKind.BUDGET in kinds):
        setting.screen.say(f"geartrain: run {snapshot.id} waits for {', '.join(snapshot.holds)}; resuming lifts none")
        _print(setting, found.place, snapshot)
        return SUSPENDED

    async def act(handle: RunHandle) -> None:
        if budget:
            await handle.raise_budget(msgspec.structs.replace(found.budget, **budget), by=setting.by)
        if kinds & _RESUMABLE:
            await handle.resume(by=setting.by)

    return await _do(setting, found, act)


def _chosen(setting: Setting, found: Found, call_id: str | None, kind: HoldKind, wanted: str) -> OpenCall:
    """Return the call that a decision is about: the one named, or else the only one that waits for it."""
    run_id = found.snapshot.id
    fitting = [call for call in found.snapshot.waiting if call.waits_for == kind]
    if call_id is not None:
        return next(
            (call for call in fitting if call.call_id == call_id),
            # Not open as far as is stored: the run itself says why it refuses.
            OpenCall(run_id=run_id, call_id=call_id, tool="", arguments="", arguments_digest="", waits_for=kind),
        )
    if len(fitting) == 1:
        return fitting[0]
    if not fitting and found.snapshot.state != RunState.SUSPENDED:
        line = command_line("resume", run_id, setting.options(found.place))
        setting.screen.say(f"run {run_id} is in the middle ({found.snapshot.state}); go on with it first: {line}")
    raise CallNotChosen(run_id, wanted, tuple(call.call_id for call in fitting))


async def _do(
    setting: Setting,
    found: Found,
    act: Callable[[RunHandle], Awaitable[object]],
    *,
    asks: bool = True,
    needs_agent: bool = True,
) -> int:
    """Do *act* to a run that has not ended, and drive it to rest; return the exit code."""
    place, snapshot = found.place, found.snapshot
    cast = cast_of(setting.app, setting.folder, recorded=found.spec)
    if needs_agent:
        cast.of_run(snapshot.agent)
    setting.index.note(place.path)

    async def on_handle(runtime: Runtime) -> None:
        await act(await runtime.get(snapshot.id))

    driven = await drive(_job(setting, place, snapshot.id, cast, asks=asks), on_handle)
    return conclude(setting, place, driven, snapshot.id)


def _job(setting: Setting, place: Place, run_id: str, cast: Cast, *, asks: bool = True) -> Job:
    screen = setting.screen
    approver = Approver(screen) if asks and screen.interactive else None
    return Job(place, run_id, cast, setting.by, screen, approver)


def _is_over(setting: Setting, found: Found, verb: str) -> int:
    snapshot = found.snapshot
    setting.screen.say(f"geartrain: run {snapshot.id} is {snapshot.state} and over; there is nothing to {verb}")
    if setting.screen.json:
        setting.screen.print_json(snapshot)
    return exit_code(snapshot)


def conclude(setting: Setting, place: Place, driven: Driven, run_id: str) -> int:
    """Print how a run rests, and return the exit code."""
    screen, snapshot = setting.screen, driven.snapshot
    if driven.signal is None:
        assert snapshot is not None, "without a signal the driving ends with the run at rest"
        _print(setting, place, snapshot)
        return exit_code(snapshot)
    if snapshot is None:
        screen.say("geartrain: stopped before the run was started")
    elif snapshot.state == RunState.SUSPENDED or snapshot.ended:
        _print(setting, place, snapshot)
    else:
        if screen.json:
            screen.print_json(snapshot)
        line = command_line("resume", run_id, setting.options(place))
        screen.say(f"geartrain: stopped in {snapshot.state}; nothing is lost, go on with: {line}")
    return 128 + driven.signal


def _print(setting: Setting, place: Place, snapshot: RunSnapshot) -> None:
    screen = setting.screen
    if screen.json:
        screen.print_json(snapshot)
    elif snapshot.answer is not None:
        screen.answer(snapshot.answer)
    screen.tell(summary(snapshot), "green" if snapshot.state == RunState.FINISHED else "bold")
    for line in reasons(snapshot):
        screen.say(f"geartrain: {line}", "red")
    for line in next_steps(snapshot, setting.options(place)):
        screen.say(line, "yellow")

"""What people do to a run from the command line: each act finds the run, drives it to rest, and says how it rests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from geartrain.cli._agents import Cast, cast_of, home_of
from geartrain.cli._approver import Approver
from geartrain.cli._drive import Driven, Job, cut_off, drive
from geartrain.cli._errors import CallNotChosen, CallNotWaiting, OptionInvalid, RunHasEnded
from geartrain.cli._outcome import (
    SUSPENDED,
    Way,
    advice,
    command_line,
    exit_code,
    next_steps,
    reasons,
    summary,
    tree_steps,
    waits_of,
)
from geartrain.cli._screen import Screen
from geartrain.cli._stores import Index, Place, find_run, store_to_run_in
from geartrain.ids import RandomIds
from geartrain.machine import AgentSpec, HoldKind, RunState
from geartrain.runtime import OpenCall, RunHandle, RunSnapshot, Runtime, open_reader

_WAITS: Final[Mapping[str, str]] = {
    HoldKind.APPROVAL: "waiting for approval",
    HoldKind.IN_DOUBT: "in doubt",
    "answer": "waiting for an answer",
}
_RESUMABLE = {HoldKind.PAUSED, HoldKind.STUCK, HoldKind.QUARANTINED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and for whom a command works: what all commands that move a run have in common."""

    screen: Screen
    folder: Path
    index: Index
    store: Path | None
    app: str | None
    by: str

    def way(self, place: Place) -> Way:
        """Return what a later command needs, from any folder, to find the same run and the same agents."""
        store = ("--store", str(place.path)) if place.how == "named" else ()
        app = ("--app", self.app) if self.app is not None else ()
        return Way((*store, *app), home_of(self.app, self.folder))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A new run: what is asked, of whom, about which folder, and where the report goes."""

    question: str
    agent: str | None = None
    root: Path | None
    write: str | None = None
    model: str | None = None
    max_turns: int | None = None
    continues: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """A run as it is stored before anything is done to it, and the spec recorded for it."""

    place: Place
    snapshot: RunSnapshot
    spec: AgentSpec | None


async def start(setting: Setting, request: Request) -> int:
    """Start a run and drive it to rest; return the exit code."""
    if not request.question.strip():
        raise OptionInvalid("QUESTION", "must not be blank")
    before = await find(setting, request.continues) if request.continues is not None else None
    context: dict[str, Any] = _context(request, before)
    if request.write is not None:
        context["write"] = _write(request.write, context["root"])
    cast = cast_of(setting.app, setting.folder, model=request.model, recorded=before.spec if before else None)
    agent = cast.for_new_run(request.agent or (before.snapshot.agent if before else None))
    if request.model is not None and agent.name in cast.own:
        raise OptionInvalid("--model", f"agent {agent.name!r} brings its own model")
    budget = agent.budget
    if request.max_turns is not None:
        budget = msgspec.structs.replace(budget, max_turns=request.max_turns)
    place = before.place if before is not None else store_to_run_in(setting.store, setting.folder)
    run_id = RandomIds().mint("r")

    async def act(runtime: Runtime) -> None:
        setting.index.note(place.path)  # not before: only now is it known to be a store
        setting.screen.tell(f"run {run_id}", "bold")
        await runtime.start(
            agent,
            request.question,
            run_id=run_id,
            budget=budget,
            continues=before.snapshot.id if before is not None else None,
            principal=setting.by,
            context=context,
        )

    return await conclude(setting, place, await drive(_job(setting, place, run_id, cast), act), run_id)


def _context(request: Request, before: Found | None) -> dict[str, Any]:
    """Return the context of a new run: its root, or all that the run had that it continues."""
    if before is not None and request.root is None and "root" in before.snapshot.context:
        context = dict(before.snapshot.context)
        context.pop("write", None)
        return context
    return {"root": _root(request.root or Path())}


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
        if snapshot.sub_agents:  # what they ask can be answered here
            tree = await reader.tree(run_id)
            snapshot = msgspec.structs.replace(snapshot, waiting=tree.open_calls, at_rest=tree.at_rest)
        return Found(place, snapshot, await reader.spec(snapshot.spec))


async def find_going(setting: Setting, given: str) -> Found:
    """Return a run that can still be acted upon."""
    found = await find(setting, given)
    if found.snapshot.ended:
        raise RunHasEnded(found.snapshot.id, found.snapshot.state)
    return found


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
    found = await find_going(setting, given)
    verb = "approve" if approved else "deny"
    call = chosen(setting, found, call_id, HoldKind.APPROVAL, f"which call to {verb}? it must be waiting for approval")

    async def act(handle: RunHandle) -> None:
        if not approved:
            await handle.deny(call.id, by=setting.by, reason=reason)
            return
        scope: Literal["", "run"] = "run" if remember else ""
        await handle.approve(
            call.id,
            by=setting.by,
            reason=reason,
            arguments=arguments,
            arguments_digest=call.arguments_digest,
            remember=scope,
        )

    return await do(setting, found, act)


async def settle(
    setting: Setting, given: str, call_id: str | None, *, done: bool, not_done: Literal["", "run", "skip"], text: str
) -> int:
    """Settle a doubt; return the exit code."""
    found = await find_going(setting, given)
    call = chosen(setting, found, call_id, HoldKind.IN_DOUBT, "which call to settle? it must be in doubt")
    return await do(
        setting,
        found,
        lambda handle: handle.settle(call.id, by=setting.by, done=done, not_done=not_done, text=text),
    )


async def send(setting: Setting, given: str, text: str, *, pinned: bool) -> int:
    """Say something to a run; return the exit code."""
    found = await find_going(setting, given)
    return await do(setting, found, lambda handle: handle.send(text, by=setting.by, pinned=pinned))


async def pause(setting: Setting, given: str, reason: str) -> int:
    """Pause a run; return the exit code."""
    found = await find_going(setting, given)
    return await do(setting, found, lambda handle: handle.pause(by=setting.by, reason=reason), asks=False)


async def cancel(setting: Setting, given: str, reason: str) -> int:
    """Cancel a run; return the exit code."""
    found = await find_going(setting, given)
    # A run whose agent is gone can still be got rid of.
    return await do(setting, found, lambda handle: handle.cancel(reason, by=setting.by), asks=False, needs_agent=False)


async def resume(setting: Setting, given: str, budget: dict[str, int | float]) -> int:
    """Go on with a run that was left in the middle, paused or out of budget; return the exit code."""
    found = await find(setting, given)
    snapshot = found.snapshot
    if snapshot.ended:
        setting.screen.say(f"geartrain: {RunHasEnded(snapshot.id, snapshot.state)}")
        await _print(setting, found.place, snapshot)
        return exit_code(snapshot)
    kinds = {hold.partition("(")[0] for hold in snapshot.holds}
    if (
        snapshot.at_rest
        and not (kinds & _RESUMABLE)
        and not (budget and (HoldKind.BUDGET in kinds or snapshot.sub_agents))
    ):
        setting.screen.say(
            f"geartrain: run {snapshot.id} waits for {', '.join(waits_of(snapshot))}; resuming lifts none"
        )
        await _print(setting, found.place, snapshot)
        return SUSPENDED

    async def act(handle: RunHandle) -> None:
        if budget:
            await handle.raise_budget(msgspec.structs.replace(snapshot.budget, **budget), by=setting.by)
        if kinds & _RESUMABLE:
            await handle.resume(by=setting.by)

    return await do(setting, found, act)


def chosen(setting: Setting, found: Found, call_id: str | None, kind: str, wanted: str) -> OpenCall:
    """Return the call that a decision is about: the one named, or else the only one that waits for it.

    A name without a run is that of a call of this run: said twice, it does not find a call of one below it.
    """
    snapshot = found.snapshot
    fitting = [call for call in snapshot.waiting if call.waits_for == kind]
    named = [call for call in fitting if call_id in (None, call.id, _shown_id(call, snapshot))]
    if len(named) == 1:
        return named[0]
    way = setting.way(found.place)
    if not fitting and not snapshot.at_rest:
        line = command_line("resume", snapshot.id, way)
        setting.screen.say(f"run {snapshot.id} is in the middle ({snapshot.state}); go on with it first: {line}")
    elif not fitting:
        for line in next_steps(snapshot, way):
            setting.screen.say(line)
    open_calls = tuple(_shown_id(call, snapshot) for call in fitting)
    if call_id is not None:
        raise CallNotWaiting(snapshot.id, call_id, _WAITS[kind], open_calls)
    raise CallNotChosen(snapshot.id, wanted, open_calls)


def _shown_id(call: OpenCall, snapshot: RunSnapshot) -> str:
    return call.call_id if call.run_id == snapshot.id else call.id


async def do(
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

    async def on_handle(runtime: Runtime) -> None:
        setting.index.note(place.path)
        await act(await runtime.get(snapshot.id))

    driven = await drive(_job(setting, place, snapshot.id, cast, asks=asks), on_handle)
    return await conclude(setting, place, driven, snapshot.id)


def _job(setting: Setting, place: Place, run_id: str, cast: Cast, *, asks: bool = True) -> Job:
    screen = setting.screen
    approver = Approver(screen) if asks and screen.interactive else None
    go_on = command_line("resume", run_id, setting.way(place))
    return Job(place, run_id, cast, setting.by, screen, go_on, approver)


async def conclude(setting: Setting, place: Place, driven: Driven, run_id: str) -> int:
    """Print how a run rests, and return the exit code."""
    screen, snapshot = setting.screen, driven.snapshot
    if driven.signal is None:
        assert snapshot is not None, "without a signal the driving ends with the run at rest"
        await _print(setting, place, snapshot)
        return exit_code(snapshot)
    if snapshot is None:
        screen.say("geartrain: stopped before the run was started")
    elif snapshot.at_rest:
        await _print(setting, place, snapshot)
    else:
        if screen.json:
            screen.print_json(snapshot)
        line = command_line("resume", run_id, setting.way(place))
        what = f"{cut_off(driven.cut_off)}; go on" if driven.cut_off else "nothing is lost, go on"
        screen.say(f"geartrain: stopped in {snapshot.state}; {what} with: {line}")
    return 128 + driven.signal


async def _print(setting: Setting, place: Place, snapshot: RunSnapshot) -> None:
    screen = setting.screen
    if screen.json:
        screen.print_json(snapshot)
    elif snapshot.answer is not None:
        screen.answer(snapshot.answer)
    screen.tell(summary(snapshot), "green" if snapshot.state == RunState.FINISHED else "bold")
    for line in reasons(snapshot):
        screen.say(f"geartrain: {line}", "red")
    for line in advice(snapshot):
        screen.say(line, "dim")
    for line in await steps_in(place, snapshot, setting.way(place)):
        screen.say(line, "yellow")


async def steps_in(place: Place, snapshot: RunSnapshot, way: Way) -> list[str]:
    """Return what a run that rests, and all that is below it, waits for, and the commands that answer it."""
    if snapshot.ended or not snapshot.sub_agents:
        return next_steps(snapshot, way)
    async with open_reader(place.path) as reader:
        return tree_steps(await reader.tree(snapshot.id), way)

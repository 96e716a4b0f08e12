"""Driving one run to rest: open its store, do one thing to it, show what happens, leave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import anyio
from msgspec.structs import replace

from geartrain.cli._agents import Cast
from geartrain.cli._approver import Answer, Approver
from geartrain.cli._interruption import Interruption
from geartrain.cli._screen import Screen
from geartrain.cli._stores import Place
from geartrain.cli._timeline import line_of
from geartrain.cli._tree_lines import counts
from geartrain.errors import GeartrainError, RunNotFound, RunSetApart
from geartrain.limits import Limits
from geartrain.machine import HoldKind, RunState
from geartrain.runtime import OpenCall, RunSnapshot, Runtime, Watch, open_reader
from geartrain.trace import TraceRecord

_LOOK_SECONDS: Final = 0.5

Act = Callable[[Runtime], Awaitable[object]]

# What is told while a run is driven, with its colour; `show` tells the rest.
_TOLD: Final = {
    "state_transition": "cyan",
    "tool_call_requested": "",
    "sub_agent_started": "",
    "approval_requested": "yellow",
    "approval_decided": "yellow",
    "tool_call_finished": "dim",
    "write_in_doubt": "red",
    "call_settled": "yellow",
    "input_received": "",
    "answer_requested": "yellow",
    "turn_taken": "",
    "run_recovered": "yellow",
    "actor_restarted": "red",
    "run_quarantined": "red",
}


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one store, who drives it, with which agents, and who is asked if somebody can be.

    `go_on` is the command that goes on with the run later.
    """

    place: Place
    run_id: str
    cast: Cast
    by: str
    screen: Screen
    go_on: str
    approver: Approver | None = None
    under_way: set[str] = field(default_factory=set)  # the writes that have begun and not ended


@dataclass(frozen=True, slots=True)
class Driven:
    """How far a run came (None: it was not even started), and the signal that broke the driving off, if one did."""

    snapshot: RunSnapshot | None
    signal: int | None = None
    cut_off: tuple[str, ...] = ()  # the writes that have begun and not ended


async def drive(job: Job, act: Act) -> Driven:
    """Do *act*, and wait until the run has ended or waits for somebody; other runs of the store are left alone.

    A signal closes the store in order: no run ends because of it.

    Raises:
        StoreBusy: Another process owns the store.
        EventRefused: The run cannot take what *act* brings.
    """
    snapshot: RunSnapshot | None = None

    def on_first() -> None:
        if job.under_way:
            what = ", ".join(sorted(job.under_way))
            grace = f"{Limits().grace_seconds:.0f} s for what has started ({what})"
            job.screen.say(f"geartrain: waiting up to {grace}; Ctrl-C again stops now")

    def on_second() -> None:
        what = f"{cut_off(job.under_way)}; " if job.under_way else ""
        job.screen.say(f"geartrain: stopped at once; {what}go on with: {job.go_on}")

    with Interruption(on_first, on_second) as interruption:
        async with Runtime.open(
            job.place.path, agents=job.cast.agents.values(), policy=job.cast.policy, recover="none"
        ) as runtime:
            with anyio.CancelScope() as scope:
                interruption.guard(scope)
                snapshot = await _to_rest(runtime, job, act)
        if snapshot is not None:
            return Driven(snapshot)
        return await _stored(job, interruption.signal)


async def _stored(job: Job, number: int | None) -> Driven:
    """Return how the run is stored after a signal has broken the driving off."""
    job.under_way.clear()
    try:
        async with open_reader(job.place.path) as reader:
            snapshot = await reader.snapshot(job.run_id)
            async for record in reader.timeline(job.run_id):
                follow(record, job.under_way)
    except RunNotFound:
        return Driven(None, number)
    return Driven(snapshot, number, tuple(sorted(job.under_way)))


def follow(record: TraceRecord, under_way: set[str]) -> None:
    """Keep in *under_way* which writes have begun and not ended."""
    if record.event == "tool_call_started":
        under_way.add(record.payload["call_id"])
    elif record.event in ("tool_call_finished", "write_in_doubt", "call_settled"):
        under_way.discard(record.payload["call_id"])


def cut_off(calls: Collection[str]) -> str:
    """Return what is to say of writes that have begun and whose end nobody saw."""
    was = "was" if len(calls) == 1 else "were"
    return f"{', '.join(sorted(calls))} {was} cut off and may have been done: in doubt, unless the tool can tell"


async def _to_rest(runtime: Runtime, job: Job, act: Act) -> RunSnapshot:
    rest = await _leg(runtime, job, act)
    while job.approver is not None and (call := _to_ask_about(rest)) is not None:
        said = await job.approver.ask(call, rest.context.get("root"))
        if said is Answer.LATER:
            break
        rest = await _leg(runtime, job, _decision(job, call, approved=said is Answer.YES))
    return rest


def _decision(job: Job, call: OpenCall, *, approved: bool) -> Act:
    async def act(runtime: Runtime) -> None:
        handle = await runtime.get(job.run_id)
        if approved:
            await handle.approve(call.id, by=job.by, arguments_digest=call.arguments_digest)
        else:
            await handle.deny(call.id, by=job.by)

    return act


def _to_ask_about(rest: RunSnapshot) -> OpenCall | None:
    """Return the first call that waits for approval, if nothing but approvals keeps the run from going on."""
    kinds = {hold.partition("(")[0] for hold in rest.holds}
    below = bool(rest.sub_agents) and not kinds - {HoldKind.APPROVAL}
    if not below and (rest.state != RunState.SUSPENDED or kinds != {HoldKind.APPROVAL}):
        return None
    return next((call for call in rest.waiting if call.waits_for == HoldKind.APPROVAL), None)


async def _leg(runtime: Runtime, job: Job, act: Act) -> RunSnapshot:
    """Do *act* and wait until the run rests, telling meanwhile what happens."""
    watch = runtime.watch(job.run_id)  # before the act, so that nothing is missed
    rest: RunSnapshot | GeartrainError
    done = anyio.Event()
    try:
        await act(runtime)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_tell, watch, job)
            if job.screen.moving:
                tasks.start_soon(_tell_of_tree, runtime, job, done)
            try:
                rest = await _rested(runtime, job.run_id)
            except GeartrainError as error:  # the task group would wrap it
                rest = error
            finally:
                done.set()
                watch.close()
    finally:
        watch.close()
    if isinstance(rest, GeartrainError):
        raise rest
    return rest


async def _rested(runtime: Runtime, run_id: str) -> RunSnapshot:
    """Wait until a run rests, with the tree that it is in; its sub-agents' questions are told as its own."""
    handle = await runtime.get(run_id)
    rest = await handle.wait_at_rest()
    if rest.root != run_id:
        await (await runtime.get(rest.root)).wait_at_rest()
        rest = await handle.wait_at_rest()
    if rest.sub_agents and not rest.ended:
        rest = replace(rest, waiting=(await handle.tree()).open_calls)
    return rest


async def _tell(watch: Watch, job: Job) -> None:
    with suppress(RunSetApart):  # whoever waits for the run is told
        async for record in watch:
            follow(record, job.under_way)
            tell(record, job.screen)
    if watch.dropped:
        job.screen.tell(f"… {watch.dropped:,} more records than could be shown; `geartrain show` has them all")


async def _tell_of_tree(runtime: Runtime, job: Job, done: anyio.Event) -> None:
    """Show how far the tree of a run is, in one line that replaces itself, as long as sub-agents are at work."""
    while not done.is_set():
        began = anyio.current_time()
        with suppress(GeartrainError):  # whoever waits for the run is told
            handle = await runtime.get(job.run_id)
            if (await handle.snapshot()).sub_agents:
                job.screen.progress(f"  {counts(await handle.tree())}")
        with anyio.move_on_after(max(_LOOK_SECONDS, 9 * (anyio.current_time() - began))):
            await done.wait()
    job.screen.progress("")


def tell(record: TraceRecord, screen: Screen) -> None:
    """Tell a record of a run that is being driven, if it is of a kind that is told."""
    style = _TOLD.get(record.event)
    if record.event == "run_started":
        screen.tell(RunState.CREATED, _TOLD["state_transition"])
    elif style is not None:
        indent = "" if record.event == "state_transition" else "  "
        screen.tell(indent + line_of(record), style)

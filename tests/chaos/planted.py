"""Bugs planted on purpose: each function puts one into the process that it is called in, and returns a run.

They are what the harness must find. Each is a mistake that somebody could make in one line.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import disk
from msgspec.structs import replace

from geartrain.errors import InvalidValue
from geartrain.ids import sub_agent_run_id
from geartrain.machine import (
    ApprovalDecided,
    CallAnswered,
    CancelRequested,
    RunState,
    SubAgentEnded,
    Used,
    _call_handlers,
    _context,
    _crashes,
    _moves,
    _step,
    _table,
    sub_agents_at_work,
)
from geartrain.persistence.sqlite import _journal
from geartrain.runtime import _actor, _entry, _outgoing, _residents, _run_supervisor, _suspects
from geartrain.runtime._effects import _executor
from geartrain.runtime._effects import _tool as _tool_effect
from geartrain.testing import _kill_runs, _kill_trees
from geartrain.testing.kill import ForkServer, Make, Played, Point, Scenario, play_all, points_of
from geartrain.testing.ledger import Ledger


def effects_before_the_append(ledger: Ledger) -> Scenario:
    """Start what a step asks for, then append the step."""
    append = _actor.RunActor._append

    def ahead(self: Any, moves: Any, *rest: Any) -> Any:
        stored, self.run = self.run, moves[-1].run
        self.node.effects.reconcile(self)
        self.run = stored
        return append(self, moves, *rest)

    _actor.RunActor._append = ahead
    return _kill_runs.reads(ledger)


def acknowledged_before_the_commit(ledger: Ledger) -> Scenario:
    """Tell callers that their event is stored when it is handed to the store."""
    append = _actor.RunActor._append

    def told(self: Any, moves: Any, taken: Any, *consumed: Any) -> Any:
        for delivery, seq in taken:
            delivery.accept(seq)
        return append(self, moves, taken, *consumed)

    _actor.RunActor._append = told
    return _kill_runs.approval(ledger)


def a_start_that_is_not_journalled(ledger: Ledger) -> Scenario:
    """Begin a write without writing down that it begins."""

    _tool_effect.ToolEffect._journal_start = _tool_effect.ToolEffect._run
    return _kill_runs.write(ledger)


def a_takeover_that_is_not_journalled(ledger: Ledger) -> Scenario:
    """Go on with a run of a dead process as if nothing had happened."""
    send = _actor.Cell.send_nowait

    def without(self: Any, message: Any, *lane: Any) -> None:
        if type(message.event).__name__ != "RunRecovered":
            send(self, message, *lane)

    _actor.Cell.send_nowait = without
    resident = _residents.Residents._resident

    def reconciled(self: Any, *arguments: Any) -> Any:
        actor = resident(self, *arguments)
        self._node.effects.reconcile(actor)
        return actor

    _residents.Residents._resident = reconciled
    return _kill_runs.plain(ledger)


def lost_writes_run_again(ledger: Ledger) -> Scenario:
    """Take a started write that was lost with its process for one that has not started."""
    lose = _crashes.lose_progress

    def lost(draft: Any) -> None:
        for call in draft.run.calls:
            if call.status == "started":
                draft.set_call(call, status=type(call.status)("running"))
        lose(draft)

    _crashes.lose_progress = lost
    return _kill_runs.write(ledger)


def an_effect_twice_after_reload(ledger: Ledger) -> Scenario:
    """Carry a write out once for each attempt, those included that never began."""
    run_tool = _executor.LiveExecutor.run_tool

    async def repeated(self: Any, tool: Any, command: Any, *rest: Any, **hooks: Any) -> Any:
        for _ in range(1, command.attempt):
            await run_tool(self, tool, command, *rest, **hooks)
        return await run_tool(self, tool, command, *rest, **hooks)

    _executor.LiveExecutor.run_tool = repeated
    return _kill_runs.write(ledger)


def one_yes_for_all(ledger: Ledger) -> Scenario:
    """Take the approval of one call for that of every call that waits."""
    decided = _call_handlers.on_decided

    def all_of_them(draft: Any, event: Any) -> None:
        for call in draft.run.calls:
            if call.status == "asked" and call.id != event.call_id:
                draft.set_call(call, status=type(call.status)("approved"), approved=True, expires_at=None)
                draft.lift(lambda hold, call=call: hold.call_id == call.id)
        decided(draft, event)

    rows = {state: {**row, **({ApprovalDecided: all_of_them} if row else {})} for state, row in _table.ROWS.items()}
    _step.ROWS = rows
    return _kill_runs.approval(ledger)


def results_in_another_order(ledger: Ledger) -> Scenario:
    """Show the model the results of a reply in another order than that of its calls."""
    say = _context.say

    def turned(draft: Any, *messages: Any) -> None:
        say(draft, messages[0], *reversed(messages[1:]))

    _context.say = turned
    return _kill_runs.reads(ledger)


def a_lost_commit(ledger: Ledger) -> Scenario:
    """Roll the first entry of a run's end back, and say that it is written."""
    write_batch = _journal.write_batch

    def lost(connection: Any, entries: Any) -> Any:
        if not any(entry.head.ended for entry in entries):
            return write_batch(connection, entries)
        return [entry.expected + len(entry.events) for entry in entries]

    _journal.write_batch = lost
    return _kill_runs.plain(ledger)


def a_failed_commit_that_is_not_read_back(ledger: Ledger) -> Scenario:
    """Take a commit that failed for one that wrote nothing."""
    _journal._read_stored = lambda connection, entries, cause: False
    return _kill_runs.approval(ledger)


def a_yes_to_something_else(ledger: Ledger) -> Scenario:
    """Let an approval count although a guardrail has changed the arguments since."""
    changed = _call_handlers._changed

    def still_approved(draft: Any, call: Any, verdict: Any) -> Any:
        return draft.set_call(changed(draft, call, verdict), approved=call.approved)

    _call_handlers._changed = still_approved
    return _kill_runs.handed(ledger)


def providers_asked_again(ledger: Ledger) -> Scenario:
    """Put the context together anew when a run is taken over, though what providers told is stored."""
    lose = _crashes.lose_progress

    def begun_anew(draft: Any) -> None:
        lose(draft)
        if draft.run.state is RunState.MODEL_THINKING and draft.spec.providers:
            draft.enter(RunState.PREPARE_CONTEXT)

    _crashes.lose_progress = begun_anew
    return _kill_runs.handed(ledger)


def a_write_run_again_unverified(ledger: Ledger) -> Scenario:
    """Take a write that was lost with its process for one that its tool has found not done."""
    _moves.doubt = lambda draft, call, _reason: _moves.not_done(draft, call)
    return _kill_runs.apart(ledger)


def an_outside_write_asked_for_twice(ledger: Ledger) -> Scenario:
    """Store the first answer to a write outside, and go on asking for it."""
    answered = _call_handlers.on_answered

    def second_counts(draft: Any, event: Any) -> None:
        call = draft.run.call(event.call_id)
        if call is not None and call.barrier and call.attempt == 1:
            draft.set_call(call, attempt=2, since=draft.now)
        else:
            answered(draft, event)

    rows = {
        state: {**row, **({CallAnswered: second_counts} if CallAnswered in row else {})}
        for state, row in _table.ROWS.items()
    }
    _step.ROWS = rows
    return _kill_runs.outside(ledger)


def a_death_taken_for_a_stop(ledger: Ledger) -> Scenario:
    """Take every process that is gone for one that was stopped in order: then a run that kills is never found."""
    _residents.interruption = lambda _loaded, _claim: _suspects.SHUTDOWN
    return _kill_runs.plain(ledger)


def a_crash_that_loses_what_was_in_hand(ledger: Ledger) -> Scenario:
    """Let the actor of a run crash at a decision, and tell whoever sent it that it is stored after the restart."""
    append, crashes = _actor.RunActor._append, iter([True])

    def crashing(self: Any, moves: Any, taken: Any, *consumed: Any) -> Any:
        if any(isinstance(moved.event, ApprovalDecided) for moved in moves) and next(crashes, False):
            raise InvalidValue("entry", "storable", "a fault")
        return append(self, moves, taken, *consumed)

    async def lost(_self: Any, _actor: Any, pending: Any) -> None:
        pending.popleft().accept(10_000)

    _actor.RunActor._append = crashing
    _run_supervisor.RunSupervisor._try = lost
    return _kill_runs.approval(ledger)


def an_end_that_is_sent_and_charged_again(ledger: Ledger) -> Scenario:
    """Send the end of a sub-agent's run twice, and charge whoever hears of it twice as often."""
    ended = _call_handlers.on_sub_agent_ended

    def again(moving: _outgoing.Moving) -> Iterator[_outgoing.Sent]:
        for sent in _outgoing.end(moving):
            yield sent
            yield replace(sent, event=replace(sent.event, id=f"{sent.event.id}.again"))

    def charged(draft: Any, event: Any) -> None:
        call = draft.run.call(event.call_id)
        if call is not None and call.result is not None:
            _call_handlers.charge_sub_agent(draft, event)
        else:
            ended(draft, event)

    _outgoing.SENDERS = (*_outgoing.SENDERS[:-1], again)
    _step.ROWS = {
        state: {**row, **({SubAgentEnded: charged} if SubAgentEnded in row else {})}
        for state, row in _table.ROWS.items()
    }
    return _kill_trees.team(ledger)


def a_share_that_is_not_given_back(ledger: Ledger) -> Scenario:
    """Take what sub-agents have reserved for used when their parent is taken over; its ends count beside that."""
    lose = _crashes.lose_progress

    def lost(draft: Any) -> None:
        at_work = [call.share for call in draft.run.calls if call.sub_agent and call.status == "running"]
        for share in at_work:
            draft.set(below=(draft.run.below or Used()).plus(Used(turns=share.max_turns)))
        lose(draft)

    _crashes.lose_progress = lost
    return _kill_trees.steered(ledger)


def a_message_outside_of_the_transaction(ledger: Ledger) -> Scenario:
    """Store what a run sends others in an append of its own, after that of the step that sends it."""
    entry_of, done = _actor.entry_of, _actor.RunActor._append_done
    kept: dict[str, Any] = {}

    def alone(moves: Any, *, outgoing: Any, specs: Any, **rest: Any) -> Any:
        entry = entry_of(moves, outgoing=(), specs=specs, **rest)
        kept[entry.run_id] = outgoing
        return entry

    def later(self: Any, moves: Any, taken: Any, entry: Any, future: Any) -> None:
        done(self, moves, taken, entry, future)
        sent = kept.pop(entry.run_id, ())
        if sent and not future.cancelled() and future.exception() is None:
            follows = _entry.nothing_new(self.run, self.specs[self.run.spec], self.node.claim.epoch)
            kin, run_ids = self.node.kin, [each.run_id for each in sent]
            stored = self.node.journal.append(replace(follows, outgoing=sent, specs=entry.specs))
            stored.add_done_callback(lambda future: future.exception() or kin.call(run_ids))

    _actor.entry_of = alone
    _actor.RunActor._append_done = later
    return _kill_trees.team(ledger)


def a_cancel_of_those_in_memory(ledger: Ledger) -> Scenario:
    """Cancel, of all that is below a run that is ending, only what is in memory just then, and store nothing of it."""
    done = _actor.RunActor._append_done

    def told(self: Any, *appended: Any) -> None:
        began = self.run.ending
        done(self, *appended)
        if self.run.ending is None or began is not None:
            return
        for call in sub_agents_at_work(self.run):
            actor = self.node.actors.get(sub_agent_run_id(self.run.id, call.id))
            if actor is not None:
                actor.put_result(CancelRequested(id="cancel", time=self.run.updated_at, code="cancelled_by_parent"))

    _outgoing.SENDERS = tuple(sender for sender in _outgoing.SENDERS if sender is not _outgoing.cancels)
    _actor.RunActor._append_done = told
    return _kill_trees.steered(ledger)


Bugs = dict[Make, str]

# Each bug, and which check is to find it.
BUGS: Bugs = {
    effects_before_the_append: "(9)",
    acknowledged_before_the_commit: "(1)",
    a_start_that_is_not_journalled: "(9)",
    a_takeover_that_is_not_journalled: "(10)",
    lost_writes_run_again: "(3)",
    an_effect_twice_after_reload: "(3)",
    one_yes_for_all: "(4)",
    results_in_another_order: "(7)",
    a_lost_commit: "(1)",
    a_yes_to_something_else: "(4)",
    providers_asked_again: "(3)",
    a_write_run_again_unverified: "(3)",
    an_outside_write_asked_for_twice: "(3)",
    a_death_taken_for_a_stop: "(10)",
    a_crash_that_loses_what_was_in_hand: "(1)",
    an_end_that_is_sent_and_charged_again: "(7)",
    a_share_that_is_not_given_back: "(15)",
    a_message_outside_of_the_transaction: "(12)",
    a_cancel_of_those_in_memory: "(12)",
}

# Found only where a file operation fails and the process dies when it is told so.
DISK_BUGS: Bugs = {a_failed_commit_that_is_not_read_back: "(1)"}


def first_finding(bug: str, number: str, servers: Sequence[ForkServer]) -> str | None:
    """Kill the run with *bug* in it here and there until check *number* finds something; return what it found."""
    name = f"planted:{bug}"
    dry = next(play_all([Point(scenario=name, patience_seconds=2.0)], servers))
    kills = points_of(dry.reached[0])
    random.Random(1).shuffle(kills)
    points = [Point(scenario=name, kills=(kill,), patience_seconds=2.0) for kill in kills]
    return _first(number, chain([dry], play_all(points, servers)))


def first_finding_on_disk(bug: str, number: str, servers: Sequence[ForkServer]) -> str | None:
    """Do the same with file operations that fail, and processes that die of it."""
    name = f"planted:{bug}"
    places = disk.faults(["eio@{k}!"], disk.operations(name, servers))
    # The first third of the operations makes the file; commits are behind it.
    places = places[len(places) // 3 :]
    random.Random(1).shuffle(places)
    return _first(number, play_all([Point(scenario=name, fault=place) for place in places], servers))


def _first(number: str, done: Iterable[Played]) -> str | None:
    return next((found for played in done for found in played.wrong if found.startswith(number)), None)

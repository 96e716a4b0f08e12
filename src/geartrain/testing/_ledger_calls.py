"""What a journal says of one call: who asked for it, with which arguments, under which decisions, to what result.

Rule 1: a guardrail's change makes a call another one: what was decided before it does not count for what comes after.
Rule 2: a write that has started and is not settled is changed no more.
Rule 3: a handoff is answered by what becomes of it; of several in one reply only the first is one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from geartrain.testing._ledger_store import SeenEvent, StoredRun

HANDOFF_PREFIX = "hand_off_to_"


@dataclass(slots=True)
class Given:
    """A call as its journal leaves it: its arguments, whether anybody was to be asked, and each version's decisions."""

    arguments: str
    asked: bool = False
    changed: bool = False
    decisions: list[list[SeenEvent]] = field(default_factory=lambda: [[]])

    @property
    def approved(self) -> bool:
        """Whether the last version has one decision, none has two, and all are yes."""
        every = [event for decisions in self.decisions for event in decisions]
        at_most_one = all(len(decisions) <= 1 for decisions in self.decisions)
        return bool(self.decisions[-1]) and at_most_one and all(event.body["approved"] for event in every)


def given(run: StoredRun, call: str, until: int | None = None) -> Given:
    """Return what is given for *call* as of the event *until*, or now."""
    found, started = Given(_first_arguments(run, call)), False
    for event in run.events if until is None else run.events[:until]:
        if event.type == "PermissionsEvaluated":
            for verdict in event.body["verdicts"]:
                if verdict["call_id"] == call:
                    _judge(found, verdict, started=started)
        elif event.body.get("call_id") != call:
            continue
        elif event.type == "ApprovalDecided":
            found.decisions[-1].append(event)
            found.arguments = event.body.get("arguments") or found.arguments
        elif event.type == "ToolStarted":
            started = True
        elif event.type == "CallSettled" or event.body.get("verdict") == "not_done":
            started = False
    return found


def _judge(found: Given, verdict: dict[str, Any], *, started: bool) -> None:
    found.asked = found.asked or verdict["verdict"] == "ask"
    if verdict.get("arguments") is not None and not started:
        found.arguments = verdict["arguments"]
        found.changed = True
        found.decisions.append([])


def _first_arguments(run: StoredRun, call: str) -> str:
    turn, _, place = call.partition(".")
    if place == "answer":
        texts = [event.body.get("text", "") for number, event in replies(run) if f"t{number}" == turn]
        return json.dumps({"text": texts[-1]}) if texts else "{}"
    arguments: str = requested(run).get(call, {}).get("arguments", "{}")
    return arguments


def replies(run: StoredRun) -> Iterator[tuple[int, SeenEvent]]:
    """Yield each reply with its turn: a model's, or one that somebody wrote in its place."""
    turn = 0
    for event in run.of_type("ModelReplied", "TurnTaken"):
        turn = event.body.get("turn") or turn + 1
        yield turn, event


def requested(run: StoredRun) -> dict[str, dict[str, Any]]:
    """Return the calls that were asked for, by id: `t` and the turn, `c` and the place in its reply."""
    return {
        f"t{turn}.c{place}": call
        for turn, event in replies(run)
        for place, call in enumerate(event.body.get("calls", ()), 1)
    }


def turn_of(call: str) -> int:
    """Return the turn that *call* belongs to."""
    return int(call[1:].partition(".")[0])


def judged(run: StoredRun) -> set[str]:
    """Return the calls that there is a verdict about."""
    return {verdict["call_id"] for event in run.of_type("PermissionsEvaluated") for verdict in event.body["verdicts"]}


def asked_about(run: StoredRun) -> set[str]:
    """Return the calls that somebody was to be asked about."""
    verdicts = [verdict for event in run.of_type("PermissionsEvaluated") for verdict in event.body["verdicts"]]
    return {verdict["call_id"] for verdict in verdicts if verdict["verdict"] == "ask"}


def results(run: StoredRun) -> list[str]:
    """Return the calls that have a result, each as often as it has one."""
    return [call for event in run.events if (call := _result_of(run, event))]


def _result_of(run: StoredRun, event: SeenEvent) -> str:
    body, call = event.body, event.body.get("call_id", "")
    match event.type:
        case "ToolFinished":
            is_result = body.get("verdict", "") != "not_done" and body["status"] != "in_doubt"
        case "CallSettled":
            is_result = bool(body.get("done")) or body.get("not_done") == "skip"
        case "CallAnswered" | "SubAgentEnded":
            is_result = True
        case "EventHeard":
            is_result = not _heard_before(run, event)
        case "HandedOff" | "HandoffFailed":
            is_result, call = True, handoff_of(run, event)
        case _:
            is_result = False
    return call if is_result else ""


def _heard_before(run: StoredRun, event: SeenEvent) -> bool:
    """Whether another call has heard that named event: then this one goes on waiting for the next."""
    number, name = event.body.get("number", 0), event.body["name"]
    earlier = run.events[: event.seq - 1]
    return bool(number) and any(
        each.type == "EventHeard" and (each.body["name"], each.body.get("number", 0)) == (name, number)
        for each in earlier
    )


def handoff_of(run: StoredRun, event: SeenEvent) -> str:
    """Return the call that a handoff answers; empty if it asked for none."""
    earlier = [
        f"t{turn}.c{place}"
        for turn, reply in replies(run)
        for place, call in enumerate(reply.body.get("calls", ()), 1)
        if reply.seq < event.seq and call["tool"] == HANDOFF_PREFIX + event.body["agent"]
    ]
    own = (event.body.get("call") or {}).get("id", earlier[-1] if earlier else "")
    return own if own in earlier else ""


def without_a_result(run: StoredRun) -> set[str]:
    """Return the calls that no event of their own answers: those that were refused, or are a second handoff."""
    verdicts = [verdict for event in run.of_type("PermissionsEvaluated") for verdict in event.body["verdicts"]]
    refused = {verdict["call_id"] for verdict in verdicts if verdict["verdict"] in ("invalid", "deny")}
    turns: set[int] = set()
    for call, request in requested(run).items():
        if request["tool"].startswith(HANDOFF_PREFIX) and call not in judged(run):
            if turn_of(call) in turns:
                refused.add(call)
            turns.add(turn_of(call))
    return refused


def context_of(run: StoredRun, turn: int) -> SeenEvent | None:
    """Return what the providers that were asked after *turn* have told, once it is stored."""
    begun = takeover_of(run, turn)
    after = [event for event in run.of_type("ContextPrepared", "HandedOff") if begun and event.seq > begun.seq]
    return after[0] if after and after[0].type == "ContextPrepared" else None


def takeover_of(run: StoredRun, turn: int) -> SeenEvent | None:
    """Return what made an agent ask its providers after *turn*: the run's start, or a handoff."""
    if not turn:
        return next(iter(run.of_type("RunStarted")), None)
    handoffs = [event for event in run.of_type("HandedOff") if handoff_of(run, event).startswith(f"t{turn}.")]
    return handoffs[-1] if handoffs else None


def digest(arguments: Any) -> str:
    """Return the digest that a ledger has of *arguments*."""
    text = json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]

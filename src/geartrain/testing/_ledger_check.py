"""What must hold between a ledger and a store, whatever was killed and however often.

Each check returns sentences about what is wrong, each with the number of its check in front:

(1) what was acknowledged is stored, and what was refused is not; (2) an effect that ended has its outcome stored, or
is in doubt; (3) a write was done at most once under one key; (4) an effect under approval has one earlier, matching
yes; (5) events are numbered 1..n; (6) a run has one terminal event, and it is the last; (7) a call has one result, and
the model sees results in call order; (8) epochs never fall; (9) nothing starts before its cause is stored; (10) the
first thing appended to a run that was left in the middle is that it was taken over; (11) the file is intact, and in
the end every run has ended or waits for a person.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from geartrain.testing._ledger_store import ENDS, SeenEvent, StoredRun, StoreSeen


class LineLike(Protocol):
    """What is read of a ledger's line."""

    @property
    def what(self) -> str:
        """What the line says."""
        ...

    @property
    def key(self) -> str:
        """What it says it of."""
        ...

    @property
    def kind(self) -> str:
        """Which kind of effect."""
        ...

    @property
    def digest(self) -> str:
        """Of the arguments."""
        ...

    @property
    def more(self) -> dict[str, Any]:
        """Whatever else."""
        ...


@dataclass(frozen=True, slots=True)
class Death:
    """What a dead process has left: the epoch, and of each run in the middle of something its last number."""

    epoch: int
    live: dict[str, int]

    @classmethod
    def of(cls, store: StoreSeen) -> Death:
        """Return what is to be remembered of *store* as the process left it."""
        return cls(store.epoch, {run.run_id: run.last_seq for run in store.runs.values() if run.live})


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that the checks look at."""

    store: StoreSeen
    lines: Sequence[LineLike]
    deaths: Sequence[Death]


def check(
    store: StoreSeen, lines: Sequence[LineLike], deaths: Sequence[Death] = (), *, final: bool = False
) -> list[str]:
    """Return what is wrong, as sentences; *final* when the runs have been driven to their end or to a person."""
    evidence = Evidence(store, lines, deaths)
    checks = [*ALWAYS, *(AT_LAST if final else ())]
    return [f"({number}) {found}" for number, looks in checks for found in looks(evidence)]


def acknowledged_is_stored(evidence: Evidence) -> Iterator[str]:
    """Look for what a client was told and the store does not hold, or the other way round."""
    for line in evidence.lines:
        run = evidence.store.runs.get(line.key)
        stored = {event.id for event in run.events} if run else set()
        id_, seq, state = (line.more.get(name) for name in ("id", "seq", "state"))
        if line.what == "told":
            if run is None:
                yield f"run {line.key} was acknowledged ({line.more}) and is not stored"
            elif id_ and id_ not in stored:
                yield f"event {id_} of {line.key} was acknowledged and is not stored"
            elif seq and seq > len(run.events):
                yield f"{line.key} was seen at number {seq}; {len(run.events)} are stored"
            elif state in ENDS and state != run.state:
                yield f"{line.key} was seen {state} and is stored as {run.state}"
        if line.what == "failed" and run is not None and (id_ in stored or not id_):
            yield f"{id_ or 'the start'} of {line.key} was said to be not stored, and is stored"


def ended_has_an_outcome(evidence: Evidence) -> Iterator[str]:
    """Look for writes that were done and have neither a result nor a doubt in the end."""
    for line in evidence.lines:
        if line.what != "start" or line.kind not in ("write", "once"):
            continue
        run, call = _of_key(evidence.store, line.key)
        if run is None:
            continue  # (9) says so
        rest = _after(run, "ToolStarted", call)
        outcome = next((event for event in rest if _is_outcome(event, call)), None)
        if outcome is None:
            yield f"{line.key} was done and has neither a result nor a doubt"
        elif outcome.type == "CallSettled" and not outcome.body.get("done") and outcome.body.get("not_done") == "skip":
            yield f"{line.key} was done and is settled as not done"


def _is_outcome(event: SeenEvent, call: str) -> bool:
    if event.type in ("ToolFinished", "WriteInDoubt", "CallSettled"):
        return bool(event.body.get("call_id") == call)
    return event.type == "RunRecovered" or (bool(event.path) and event.path[-1] in ENDS)


def written_once(evidence: Evidence) -> Iterator[str]:
    """Look for writes that were done twice under one key, though only an idempotent one may be."""
    starts = Counter(line.key for line in evidence.lines if line.what == "start" and line.kind == "write")
    for key, count in starts.items():
        if count > 1:
            yield f"the write {key} was done {count} times"
    for run in evidence.store.runs.values():
        once = {line.key for line in evidence.lines if line.kind == "once"}
        yield from _started_again(run, once)


def _started_again(run: StoredRun, repeatable: set[str]) -> Iterator[str]:
    open_starts: set[str] = set()
    for event in run.events:
        call = event.body.get("call_id", "")
        if event.type == "ToolStarted":
            if call in open_starts and f"{run.run_id}/{call}" not in repeatable:
                yield f"the write {run.run_id}/{call} was started again by {event.seq} without being settled"
            open_starts.add(call)
        elif event.type == "CallSettled" or event.body.get("verdict") == "not_done":
            open_starts.discard(call)


def approved_before(evidence: Evidence) -> Iterator[str]:
    """Look for effects that a person had to allow and that were done without, or with another yes."""
    for line in evidence.lines:
        run, call = _of_key(evidence.store, line.key)
        if line.what != "start" or run is None or not _was_asked(run, call):
            continue
        decisions = [e for e in run.of_type("ApprovalDecided") if e.body["call_id"] == call]
        if len(decisions) != 1 or not decisions[0].body["approved"]:
            yield f"{line.key} was done under {len(decisions)} decisions, not one yes"
            continue
        started = next((e.seq for e in run.of_type("ToolStarted") if e.body["call_id"] == call), 0)
        if 0 < started < decisions[0].seq:
            yield f"{line.key} was started by {started}, before the yes of {decisions[0].seq}"
        arguments = decisions[0].body.get("arguments") or _requested(run).get(call, {}).get("arguments", "{}")
        if line.digest and line.digest != _digest(json.loads(arguments)):
            yield f"{line.key} was done with other arguments than were approved"


def _was_asked(run: StoredRun, call: str) -> bool:
    verdicts = [verdict for e in run.of_type("PermissionsEvaluated") for verdict in e.body["verdicts"]]
    return any(verdict["call_id"] == call and verdict["verdict"] == "ask" for verdict in verdicts)


def numbered_without_gaps(evidence: Evidence) -> Iterator[str]:
    """Look for gaps, and for heads that say something else than their journal."""
    for run in evidence.store.runs.values():
        numbers = [event.seq for event in run.events]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"the events of {run.run_id} are numbered {numbers}"
        if run.last_seq != len(numbers):
            yield f"the head of {run.run_id} is at {run.last_seq}, its journal at {len(numbers)}"
        way = [state for event in run.events for state in event.path]
        if way and way[-1] != run.state:
            yield f"the head of {run.run_id} says {run.state}, its journal {way[-1]}"
        twice = [id_ for id_, count in Counter(event.id for event in run.events).items() if count > 1]
        if twice:
            yield f"the events {twice} of {run.run_id} are stored more than once"


def ends_once_and_last(evidence: Evidence) -> Iterator[str]:
    """Look for runs that end twice, or go on after their end."""
    for run in evidence.store.runs.values():
        ends = [event.seq for event in run.events if any(state in ENDS for state in event.path)]
        if len(ends) > 1 or (ends and ends[0] != run.events[-1].seq):
            yield f"{run.run_id} has its ends at {ends} of {run.events[-1].seq}"
        if bool(ends) != run.ended:
            yield f"the head of {run.run_id} says ended={run.ended}, its journal has {len(ends)} ends"


def one_result_in_order(evidence: Evidence) -> Iterator[str]:
    """Look for calls with no result or several, and for results that the model saw in another order."""
    for run in evidence.store.runs.values():
        results = Counter(e.body["call_id"] for e in run.events if _is_result(e))
        for call, count in results.items():
            if count > 1:
                yield f"call {call} of {run.run_id} has {count} results"
        if run.state == "FINISHED":
            missing = [call for call in _requested(run) if not results[call] and not _was_invalid(run, call)]
            if missing:
                yield f"calls {missing} of {run.run_id} have no result"
    for line in evidence.lines:
        if line.kind == "model" and line.what == "start":
            for asked, answered in line.more.get("seen", ()):
                if asked != answered:
                    yield f"{line.key} was shown results of {answered} for calls {asked}"


def _is_result(event: SeenEvent) -> bool:
    body = event.body
    match event.type:
        case "ToolFinished":
            return body.get("verdict", "") != "not_done" and body["status"] not in ("in_doubt",)
        case "CallSettled":
            return bool(body.get("done")) or body.get("not_done") == "skip"
        case "CallAnswered" | "SubAgentEnded":
            return True
    return False


def _was_invalid(run: StoredRun, call: str) -> bool:
    verdicts = [verdict for e in run.of_type("PermissionsEvaluated") for verdict in e.body["verdicts"]]
    return any(verdict["call_id"] == call and verdict["verdict"] in ("invalid", "deny") for verdict in verdicts)


def epochs_never_fall(evidence: Evidence) -> Iterator[str]:
    """Look for an owner that came after another with a lower number."""
    epochs = [*(death.epoch for death in evidence.deaths), evidence.store.epoch]
    if epochs != sorted(epochs):
        yield f"the epochs were {epochs}"


def caused_before(evidence: Evidence) -> Iterator[str]:
    """Look for effects that were begun before what asks for them was stored."""
    for line in evidence.lines:
        if line.what != "start":
            continue
        run, call = _of_key(evidence.store, line.key)
        if run is None:
            yield f"{line.key} was begun before its run was stored"
        elif line.kind == "model":
            yield from _model_caused(run, line)
        elif call not in _requested(run):
            yield f"{line.key} was begun before the model's reply was stored"
        elif not any(call == v["call_id"] for e in run.of_type("PermissionsEvaluated") for v in e.body["verdicts"]):
            yield f"{line.key} was begun before the policy's verdict was stored"
        elif line.kind in ("write", "once") and not _after(run, "ToolStarted", call, with_it=True):
            yield f"the write {line.key} was begun before its start was stored"


def _model_caused(run: StoredRun, line: LineLike) -> Iterator[str]:
    turn = line.more.get("turn", 1)
    replied = max((event.body["turn"] for event in run.of_type("ModelReplied")), default=0)
    if turn > replied + 1:
        yield f"{line.key} was begun when the reply of turn {replied} was the last one stored"
    results = {event.body["call_id"] for event in run.events if _is_result(event)}
    early = [c for c in _requested(run) if _turn_of(c) < turn and c not in results and not _was_invalid(run, c)]
    if early:
        yield f"{line.key} was begun before the results of {early} were stored"


def taken_over_first(evidence: Evidence) -> Iterator[str]:
    """Look for runs that went on after a death as if nothing had happened."""
    for death in evidence.deaths:
        for run_id, last in death.live.items():
            run = evidence.store.runs.get(run_id)
            after = [event for event in run.events if event.seq > last] if run else []
            if after and after[0].type != "RunRecovered":
                yield f"{run_id} was left at {last} and went on with {after[0].type}"
            if run is None or len(run.events) < last:
                yield f"{run_id} was stored up to {last} and is no more"


def intact(evidence: Evidence) -> Iterator[str]:
    """Look for damage."""
    if evidence.store.integrity != "ok":
        yield f"integrity_check says {evidence.store.integrity}"


def at_rest(evidence: Evidence) -> Iterator[str]:
    """Look for runs that neither ended nor wait for a person."""
    for run in evidence.store.runs.values():
        if run.marked:
            yield f"{run.run_id} is set apart"
        if not run.ended and not run.holds:
            yield f"{run.run_id} is stuck in {run.state} after event {run.last_seq}"


Look = Callable[[Evidence], Iterator[str]]
ALWAYS: tuple[tuple[int, Look], ...] = (
    (1, acknowledged_is_stored),
    (3, written_once),
    (4, approved_before),
    (5, numbered_without_gaps),
    (6, ends_once_and_last),
    (7, one_result_in_order),
    (8, epochs_never_fall),
    (9, caused_before),
    (10, taken_over_first),
    (11, intact),
)
AT_LAST: tuple[tuple[int, Look], ...] = ((2, ended_has_an_outcome), (11, at_rest))


def _of_key(store: StoreSeen, key: str) -> tuple[StoredRun | None, str]:
    run_id, _, call = key.rpartition("/")
    return store.runs.get(run_id), call


def _after(run: StoredRun, type_: str, call: str, *, with_it: bool = False) -> list[SeenEvent]:
    """Return the events after the last of that type about *call*; none if there is none."""
    seqs = [event.seq for event in run.of_type(type_) if event.body.get("call_id") == call]
    return [event for event in run.events if event.seq > seqs[-1] - with_it] if seqs else []


def _requested(run: StoredRun) -> dict[str, dict[str, Any]]:
    """Return the calls that the model asked for, by id: `t` and the turn, `c` and the place in its reply."""
    return {
        f"t{event.body['turn']}.c{place}": call
        for event in run.of_type("ModelReplied")
        for place, call in enumerate(event.body.get("calls", ()), 1)
    }


def _turn_of(call: str) -> int:
    return int(call[1:].partition(".")[0])


def _digest(arguments: Any) -> str:
    text = json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]

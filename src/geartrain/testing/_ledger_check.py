"""What must hold between a ledger and a store, whatever was killed and however often.

Each check returns sentences about what is wrong, each with the number of its check in front:

(1) what was acknowledged is stored, and what was refused is not; (2) an effect that ended has its outcome stored, or
is in doubt; (3) a write was done at most once under one key, and no context provider is asked again once what it told
is stored; (4) an effect under approval has one earlier, matching yes, and nothing is heard or answered that somebody
was to be asked about first; (5) events are numbered 1..n; (6) a run has one terminal event, and it is the last; (7) a
call has one result, and the model sees results in call order; (8) epochs never fall; (9) nothing starts before its
cause is stored; (10) the first thing appended to a run that was left in the middle is that it was taken over; (11) the
file is intact, and in the end every run has ended or waits for a person; (15) the runs of a tree were started by calls,
their ends are those calls' results and charged as they came about, and none outlives its root.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from geartrain.testing._ledger_calls import (
    Given,
    asked_about,
    context_of,
    digest,
    given,
    handoff_of,
    judged,
    replies,
    requested,
    results,
    takeover_of,
    turn_of,
    without_a_result,
)
from geartrain.testing._ledger_store import ENDS, SeenEvent, StoredRun, StoreSeen
from geartrain.testing._ledger_trees import ends_are_told, none_outlives_its_root, started_by_a_call, used_tokens


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
    """What a dead process has left: the epoch, and of each run in the middle of something its last number.

    `stored` is the last number of every run, and `lines` says how long the ledger was.
    """

    epoch: int
    live: dict[str, int]
    stored: dict[str, int] = field(default_factory=dict)
    lines: int = 0

    @classmethod
    def of(cls, store: StoreSeen, lines: int = 0) -> Death:
        """Return what is to be remembered of *store* and of a ledger of *lines* as the process left them."""
        runs = store.runs.values()
        live = {run.run_id: run.last_seq for run in runs if run.live}
        return cls(store.epoch, live, {run.run_id: run.last_seq for run in runs}, lines)


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
        if line.what != "start" or line.kind not in ("write", "once", "outside"):
            continue
        run, call = _of_key(evidence.store, line.key)
        if run is None:
            continue  # (9) says so
        if line.kind == "outside":
            if call not in results(run):
                yield f"{line.key} was done outside and has no result"
            continue
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
    kinds = ("write", "outside")
    starts = Counter(line.key for line in evidence.lines if line.what == "start" and line.kind in kinds)
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


def told_once(evidence: Evidence) -> Iterator[str]:
    """Look for context providers that were asked although what they had told was stored."""
    heard: set[str] = set()
    for place, line in enumerate(evidence.lines):
        run, turn = _of_key(evidence.store, line.key)[0], line.more.get("turn", 0)
        if run is None or line.what != "start":
            continue
        if line.kind == "model":
            heard.update(f"{run.run_id} {before}" for before in range(turn))
        elif line.kind == "provider":
            told = context_of(run, turn)
            lasts = [death.stored.get(run.run_id, 0) for death in evidence.deaths if death.lines <= place]
            if told is not None and told.seq <= max(lasts, default=0):
                yield f"{line.key} was asked again, though event {told.seq} has what it told"
            elif f"{run.run_id} {turn}" in heard:
                yield f"{line.key} was asked again after the model had heard it"


def approved_before(evidence: Evidence) -> Iterator[str]:
    """Look for effects that a person had to allow and that were done without, or with another yes."""
    for run in evidence.store.runs.values():
        for event in run.of_type("ToolStarted"):
            yield from _unapproved(
                given(run, event.body["call_id"], event.seq), f"the start {event.seq} of {run.run_id}"
            )
    for line in evidence.lines:
        of_run, call = _of_key(evidence.store, line.key)
        if line.what != "start" or line.kind in ("model", "provider") or of_run is None:
            continue
        now = given(of_run, call)
        yield from _unapproved(now, line.key)
        if (now.asked or now.changed) and line.digest and line.digest != digest(json.loads(now.arguments)):
            yield f"{line.key} was done with other arguments than were {'approved' if now.asked else 'allowed'}"


def _unapproved(call: Given, what: str) -> Iterator[str]:
    if call.asked and not call.approved:
        counts = [len(each) for each in call.decisions]
        yield f"{what} was done under {counts} decisions about one version after the other, not under one yes"


def judged_before(evidence: Evidence) -> Iterator[str]:
    """Look for texts that somebody had to let through and that were heard, or answered with, all the same."""
    for line in evidence.lines:
        run, _ = _of_key(evidence.store, line.key)
        if run is None or line.what != "start" or line.kind != "model":
            continue
        for call in asked_about(run):
            expired = any(event.body["call_id"] == call for event in run.of_type("ApprovalExpired"))
            if call.startswith(f"t{line.more.get('turn', 1)}.i") and not given(run, call).decisions[-1] and not expired:
                yield f"{line.key} was begun before anybody decided about {call}"
    for run in evidence.store.runs.values():
        answer = f"t{max((turn for turn, _ in replies(run)), default=0)}.answer"
        if run.state != "FINISHED" or answer not in judged(run):
            continue
        now = given(run, answer)
        yield from _unapproved(now, f"the end of {run.run_id} with {answer}")
        yield from _told_another(evidence, run, json.loads(now.arguments).get("text"))


def _told_another(evidence: Evidence, run: StoredRun, text: str | None) -> Iterator[str]:
    for line in evidence.lines:
        if line.what == "told" and line.key == run.run_id and line.more.get("answer") not in (None, text):
            yield f"{run.run_id} finished with {line.more['answer']!r}, though {text!r} was let through"


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
        found = Counter(results(run))
        for call, count in found.items():
            if count > 1:
                yield f"call {call} of {run.run_id} has {count} results"
        for event in run.of_type("HandedOff"):
            if not handoff_of(run, event):
                yield f"{run.run_id} was handed over by {event.seq}, and no call asked for it"
        if run.state == "FINISHED":
            missing = [call for call in requested(run) if not found[call] and call not in without_a_result(run)]
            if missing:
                yield f"calls {missing} of {run.run_id} have no result"
    for line in evidence.lines:
        if line.kind == "model" and line.what == "start":
            for asked, answered in line.more.get("seen", ()):
                if asked != answered:
                    yield f"{line.key} was shown results of {answered} for calls {asked}"


def epochs_never_fall(evidence: Evidence) -> Iterator[str]:
    """Look for an owner that came after another with a lower number."""
    epochs = [*(death.epoch for death in evidence.deaths), evidence.store.epoch]
    if epochs != sorted(epochs):
        yield f"the epochs were {epochs}"


def caused_before(evidence: Evidence) -> Iterator[str]:
    """Look for effects that were begun before what asks for them was stored."""
    for place, line in enumerate(evidence.lines):
        if line.what != "start":
            continue
        run, call = _of_key(evidence.store, line.key)
        if run is None:
            yield f"{line.key} was begun before its run was stored"
        elif line.kind == "model":
            yield from _model_caused(run, line)
            yield from _context_caused(run, line, evidence.lines[:place])
        elif line.kind == "provider":
            yield from _provider_caused(run, line)
        elif call not in requested(run):
            yield f"{line.key} was begun before the model's reply was stored"
        elif call not in judged(run):
            yield f"{line.key} was begun before the policy's verdict was stored"
        elif line.kind in ("write", "once") and not _after(run, "ToolStarted", call, with_it=True):
            yield f"the write {line.key} was begun before its start was stored"


def _model_caused(run: StoredRun, line: LineLike) -> Iterator[str]:
    turn = line.more.get("turn", 1)
    replied = max((turn for turn, _ in replies(run)), default=0)
    if turn > replied + 1:
        yield f"{line.key} was begun when the reply of turn {replied} was the last one stored"
    yield from _results_before(run, line, turn)


def _context_caused(run: StoredRun, line: LineLike, before: Sequence[LineLike]) -> Iterator[str]:
    own = [each for each in before if each.kind == "provider" and each.key.rpartition("/")[0] == run.run_id]
    for turn in sorted({each.more.get("turn", 0) for each in own}):
        if turn < line.more.get("turn", 1) and context_of(run, turn) is None:
            yield f"{line.key} was begun before what providers told after turn {turn} was stored"


def _provider_caused(run: StoredRun, line: LineLike) -> Iterator[str]:
    turn = line.more.get("turn", 0)
    if takeover_of(run, turn) is None:
        yield f"{line.key} was asked before the handoff of turn {turn} was stored"
    yield from _results_before(run, line, turn + 1)


def _results_before(run: StoredRun, line: LineLike, turn: int) -> Iterator[str]:
    done = {*results(run), *without_a_result(run)}
    early = [call for call in requested(run) if turn_of(call) < turn and call not in done]
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
            elif after and after[0].body.get("clean"):
                yield f"{run_id} was left at {last} by a process that died, and that was taken for an orderly stop"
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


def kin_is_kept(evidence: Evidence) -> Iterator[str]:
    """Look for runs of a tree that do not fit together."""
    yield from started_by_a_call(evidence.store)
    yield from ends_are_told(evidence.store)
    for line in evidence.lines:
        run, tokens = evidence.store.runs.get(line.key), line.more.get("tree_tokens")
        if run is not None and tokens is not None and tokens != used_tokens(run):
            yield f"{line.key} was seen to have used {tokens} tokens with all below it, and has used {used_tokens(run)}"


def kin_is_at_rest(evidence: Evidence) -> Iterator[str]:
    """Look for what a tree has left behind."""
    yield from none_outlives_its_root(evidence.store)


Look = Callable[[Evidence], Iterator[str]]
ALWAYS: tuple[tuple[int, Look], ...] = (
    (1, acknowledged_is_stored),
    (3, written_once),
    (3, told_once),
    (4, approved_before),
    (4, judged_before),
    (5, numbered_without_gaps),
    (6, ends_once_and_last),
    (7, one_result_in_order),
    (8, epochs_never_fall),
    (9, caused_before),
    (10, taken_over_first),
    (11, intact),
    (15, kin_is_kept),
)
AT_LAST: tuple[tuple[int, Look], ...] = ((2, ended_has_an_outcome), (11, at_rest), (15, kin_is_at_rest))


def _of_key(store: StoreSeen, key: str) -> tuple[StoredRun | None, str]:
    run_id, _, call = key.rpartition("/")
    return store.runs.get(run_id), call


def _after(run: StoredRun, type_: str, call: str, *, with_it: bool = False) -> list[SeenEvent]:
    """Return the events after the last of that type about *call*; none if there is none."""
    seqs = [event.seq for event in run.of_type(type_) if event.body.get("call_id") == call]
    return [event for event in run.events if event.seq > seqs[-1] - with_it] if seqs else []

"""The ledger, and each of its checks on evidence made by hand."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from geartrain.testing import _ledger_calls, _ledger_check, _ledger_store, ledger
from geartrain.testing._ledger_store import SeenEvent
from geartrain.testing.ledger import Death, Ledger, Line, StoredRun, StoreSeen, check, digest_of, read_ledger

KEY = "r/t1.c1"


def event(seq: int, type_: str, path: str = "", **body: Any) -> SeenEvent:
    return SeenEvent(seq, f"e{seq}", type_, tuple(path.split(">")) if path else (), body)


def asked_write() -> list[SeenEvent]:
    call = {"call_id": "t1.c1"}
    return [
        event(1, "RunStarted", "MODEL_THINKING"),
        event(2, "ModelReplied", "WAIT_APPROVAL", turn=1, calls=[{"tool": "post", "arguments": '{"text":"a"}'}]),
        event(3, "PermissionsEvaluated", "SUSPENDED", verdicts=[{**call, "verdict": "ask"}]),
        event(4, "ApprovalDecided", "EXECUTE_TOOL", approved=True, **call),
        event(5, "ToolStarted", **call),
        event(6, "ToolFinished", "MODEL_THINKING", status="ok", **call),
        event(7, "ModelReplied", "FINISHED", turn=2),
    ]


def store(events: list[SeenEvent], **fields: Any) -> StoreSeen:
    state = [state for each in events for state in each.path][-1]
    ended = state in _ledger_store.ENDS
    run = StoredRun("r", state, len(events), not ended, ended, (), False, tuple(events))
    return StoreSeen({"r": replace(run, **fields)}, 2)


LINES = (
    Line("told", "r", more={"id": "e4", "seq": 4}),
    Line("start", KEY, "write", digest_of({"text": "a"})),
    Line("end", KEY, "write"),
    Line("start", "r/t2.reply", "model", more={"turn": 2, "seen": [[["t1.c1"], ["t1.c1"]]]}),
    Line("told", "r", more={"id": "", "seq": 7, "state": "FINISHED"}),
)


def changed(place: int, **fields: Any) -> list[SeenEvent]:
    events = asked_write()
    events[place] = replace(events[place], **fields)
    return events


def without(*seqs: int) -> list[SeenEvent]:
    kept = [each for each in asked_write() if each.seq not in seqs]
    return [replace(each, seq=number) for number, each in enumerate(kept, 1)]


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert check(store(asked_write()), LINES, [Death(1, {})], final=True) == []


@pytest.mark.parametrize(
    ("number", "seen", "lines", "deaths"),
    [
        (1, StoreSeen(), LINES[:1], ()),
        (1, store(without(4)), LINES[:1], ()),
        (1, store(asked_write()), [Line("told", "r", more={"seq": 8})], ()),
        (1, store(without(7)), LINES[-1:], ()),
        (1, store(asked_write()), [Line("failed", "r", more={"id": "e4"})], ()),
        (2, store(without(6, 7)), LINES[1:3], ()),
        (3, store(asked_write()), [LINES[1], LINES[1]], ()),
        (3, store(changed(5, type="ToolStarted")), (), ()),
        (4, store(without(4)), LINES[1:2], ()),
        (4, store(changed(3, body={"call_id": "t1.c1", "approved": False})), LINES[1:2], ()),
        (4, store(asked_write()), [replace(LINES[1], digest=digest_of({"text": "b"}))], ()),
        (5, store(asked_write()[:2] + asked_write()[3:]), (), ()),
        (5, store(asked_write(), last_seq=6), (), ()),
        (5, store(changed(6, id="e6")), (), ()),
        (6, store(changed(5, path=("FINISHED",))), (), ()),
        (6, store(asked_write(), ended=False), (), ()),
        (7, store(changed(6, type="ToolFinished", body={"call_id": "t1.c1", "status": "ok"})), (), ()),
        (7, store(without(5, 6)), (), ()),
        (7, store(asked_write()), [replace(LINES[3], more={"seen": [[["a", "b"], ["b", "a"]]]})], ()),
        (8, store(asked_write()), (), [Death(3, {})]),
        (9, store(without(5)), LINES[1:2], ()),
        (9, store(asked_write()[:1]), [Line("start", "r/t2.reply", "model", more={"turn": 2})], ()),
        (9, store(asked_write()[:5]), [Line("start", "r/t2.reply", "model", more={"turn": 2})], ()),
        (9, StoreSeen(), [Line("start", "r/t1.reply", "model", more={"turn": 1})], ()),
        (10, store(asked_write()), (), [Death(1, {"r": 4})]),
        (11, store(asked_write()[:2]), (), ()),
        (11, replace(store(asked_write()), integrity="row 3 missing from index"), (), ()),
    ],
)
def test_each_check_finds_what_it_is_for(number: int, seen: StoreSeen, lines, deaths) -> None:
    found = check(seen, lines, deaths, final=True)

    assert any(each.startswith(f"({number}) ") for each in found), found


def guarded_and_handed_over() -> list[SeenEvent]:
    said, post, answer = ({"call_id": call} for call in ("t1.i1", "t2.c1", "t3.answer"))
    changed = {**post, "verdict": "ask", "arguments": '{"text":"b"}'}
    again = {**post, "verdict": "ask", "arguments": '{"text":"c"}'}
    return [
        event(1, "RunStarted", "PREPARE_CONTEXT"),
        event(2, "ContextPrepared", "WAIT_APPROVAL"),
        event(3, "PermissionsEvaluated", "SUSPENDED", verdicts=[{**said, "verdict": "ask"}]),
        event(4, "ApprovalDecided", "MODEL_THINKING", approved=True, **said),
        event(
            5, "ModelReplied", "PREPARE_CONTEXT", turn=1, calls=[{"tool": "hand_off_to_b"}, {"tool": "hand_off_to_c"}]
        ),
        event(6, "HandedOff", "PREPARE_CONTEXT", agent="b", call={"id": "t1.c1"}),
        event(7, "ContextPrepared", "MODEL_THINKING"),
        event(8, "ModelReplied", "WAIT_APPROVAL", turn=2, calls=[{"tool": "post", "arguments": '{"text":"a"}'}]),
        event(9, "PermissionsEvaluated", "SUSPENDED", verdicts=[changed]),
        event(10, "ApprovalDecided", "WAIT_APPROVAL", approved=True, **post),
        event(11, "PermissionsEvaluated", "SUSPENDED", verdicts=[again]),
        event(12, "ApprovalDecided", "EXECUTE_TOOL", approved=True, **post),
        event(13, "ToolStarted", **post),
        event(14, "ToolFinished", "MODEL_THINKING", status="ok", **post),
        event(15, "ModelReplied", "WAIT_APPROVAL", turn=3, text="Done."),
        event(16, "PermissionsEvaluated", "SUSPENDED", verdicts=[{**answer, "verdict": "ask"}]),
        event(17, "ApprovalDecided", "FINISHED", approved=True, **answer),
    ]


GUARDED = (
    Line("start", "r/t0.notes", "provider", more={"turn": 0}),
    Line("start", "r/t1.reply", "model", more={"turn": 1}),
    Line("start", "r/t1.notes", "provider", more={"turn": 1}),
    Line("start", "r/t2.reply", "model", more={"turn": 2}),
    Line("start", "r/t2.c1", "write", digest_of({"text": "c"})),
    Line("told", "r", more={"seq": 17, "state": "FINISHED", "answer": "Done."}),
)


def but(place: int, **body: Any) -> StoreSeen:
    """Return that run with something else in the event *place*."""
    events = guarded_and_handed_over()
    events[place - 1] = replace(events[place - 1], body=body)
    return store(events)


def forgotten(place: int) -> StoreSeen:
    """Return that run with an event of no meaning in the place of the event *place*."""
    events = guarded_and_handed_over()
    events[place - 1] = replace(events[place - 1], type="InputReceived", body={})
    return store(events)


def until(last: int) -> StoreSeen:
    return store(guarded_and_handed_over()[:last])


def test_nothing_is_found_wrong_with_a_run_that_is_judged_changed_and_handed_over() -> None:
    assert check(store(guarded_and_handed_over()), GUARDED, [Death(1, {})], final=True) == []


@pytest.mark.parametrize(
    ("found", "seen", "lines", "deaths"),
    [
        ("(3) r/t0.notes was asked again, though", until(4), GUARDED[:1], [Death(1, {}, {"r": 2}, 0)]),
        ("(3) r/t0.notes was asked again after", until(17), [GUARDED[1], GUARDED[0]], ()),
        ("(3) r/t1.notes was asked again, though", until(9), GUARDED[:3], [Death(1, {}, {"r": 8}, 2)]),
        ("(4) the start 13 of r", forgotten(12), (), ()),
        ("(4) the start 13 of r", forgotten(11), (), ()),
        ("(4) r/t2.c1 was done under", forgotten(12), GUARDED[4:5], ()),
        ("(4) r/t2.c1 was done with", until(17), [replace(GUARDED[4], digest=digest_of({"text": "b"}))], ()),
        ("(4) r/t1.reply was begun before anybody", until(3), GUARDED[1:2], ()),
        ("(4) the end of r", forgotten(17), (), ()),
        ("(4) the end of r", but(17, call_id="t3.answer", approved=False), (), ()),
        ("(4) r finished with", until(17), [replace(GUARDED[5], more={"answer": "No."})], ()),
        ("(7) r was handed over by 6", but(6, agent="d", call={"id": "t1.c1"}), (), ()),
        ("(7) calls ['t1.c1']", forgotten(6), (), ()),
        ("(9) r/t1.notes was asked before", until(5), GUARDED[2:3], ()),
        ("(9) r/t1.reply was begun before what providers", until(1), GUARDED[:2], ()),
        ("(9) r/t2.reply was begun before what providers", until(6), GUARDED[:4], ()),
        ("(9) r/t2.reply was begun before the results", until(5), GUARDED[3:4], ()),
    ],
)
def test_what_is_told_judged_changed_and_handed_over_is_checked(found: str, seen: StoreSeen, lines, deaths) -> None:
    all_found = check(seen, lines, deaths)

    assert any(each.startswith(found) for each in all_found), all_found


def driven_from_outside(*, answered: int = 1) -> StoreSeen:
    answers = [("CallAnswered", "MODEL_THINKING")] * answered
    events = [
        event(1, "RunStarted", "MODEL_THINKING"),
        event(2, "TurnTaken", "WAIT_APPROVAL", calls=[{"tool": "ship", "arguments": '{"parcel":"a"}'}]),
        event(3, "PermissionsEvaluated", "EXECUTE_TOOL", verdicts=[{"call_id": "t1.c1", "verdict": "allow"}]),
        *(event(seq, type_, path, call_id="t1.c1") for seq, (type_, path) in enumerate(answers, 4)),
    ]
    return store([*events, event(len(events) + 1, "TurnTaken", "FINISHED", turn=2, text="Done.")])


@pytest.mark.parametrize(
    ("found", "seen", "kinds"),
    [
        ("", driven_from_outside(), ["outside"]),
        ("(2) ", driven_from_outside(answered=0), ["outside"]),
        ("(3) ", driven_from_outside(), ["outside", "outside"]),
        ("(3) ", driven_from_outside(), ["outside", "write"]),
        ("(7) ", driven_from_outside(answered=0), []),
        ("(7) ", driven_from_outside(answered=2), ["outside"]),
        ("(9) ", driven_from_outside(), ["write"]),
        ("(9) ", StoreSeen(), ["outside"]),
    ],
)
def test_what_is_done_outside_is_done_once_and_answered(found: str, seen: StoreSeen, kinds: list[str]) -> None:
    all_found = check(seen, [Line("start", "r/t1.c1", kind) for kind in kinds], final=True)

    assert any(each.startswith(found) for each in all_found) if found else all_found == []


def a_tree() -> list[StoredRun]:
    """Return a run that has called another one, which has ended; and that one."""
    calls = {"turn": 1, "calls": [{"tool": "scout", "arguments": '{"input":"go"}'}]}
    usage = {"input_tokens": 7, "output_tokens": 1}
    ended = {"call_id": "t1.c1", "run_id": "s", "state": "FINISHED", "text": "Seen.", "turns": 1, "usage": usage}
    root = [
        event(1, "RunStarted", "MODEL_THINKING", agent="team"),
        event(2, "ModelReplied", "WAIT_APPROVAL", **calls),
        event(3, "PermissionsEvaluated", "SUSPENDED", verdicts=[{"call_id": "t1.c1", "verdict": "allow"}]),
        event(4, "SubAgentEnded", "MODEL_THINKING", **ended),
        event(5, "ModelReplied", "FINISHED", turn=2, text="Done."),
    ]
    below = [
        event(1, "RunStarted", "MODEL_THINKING", agent="scout", parent={"run_id": "r", "call_id": "t1.c1"}),
        event(2, "ModelReplied", "FINISHED", turn=1, text="Seen."),
    ]
    return [
        StoredRun("r", "FINISHED", 5, False, True, (), False, tuple(root), root="r", tokens=10),
        StoredRun("s", "FINISHED", 2, False, True, (), False, tuple(below), parent="r", root="r", tokens=8),
    ]


def tree(*runs: StoredRun, **fields: Any) -> StoreSeen:
    return StoreSeen({run.run_id: run for run in runs}, 1, **fields)


def told_otherwise(**body: Any) -> StoreSeen:
    root, below = a_tree()
    told = replace(root.events[3], body={**root.events[3].body, **body})
    return tree(replace(root, events=(*root.events[:3], told, *root.events[4:])), below)


def begun(*events: int, root_ended: bool = True, **body: Any) -> StoreSeen:
    """Return that tree with only these events of the root, and another start of the run below it."""
    root, below = a_tree()
    start = replace(below.events[0], body={**below.events[0].body, **body})
    kept = tuple(root.events[place - 1] for place in events)
    return tree(replace(root, events=kept, ended=root_ended), replace(below, events=(start, below.events[1])))


def test_nothing_is_found_wrong_with_a_tree_whose_end_is_told_and_charged() -> None:
    seen = [Line("told", "r", more={"tree_tokens": 18})]

    assert check(tree(*a_tree()), seen, final=True) == []


@pytest.mark.parametrize(
    ("found", "seen"),
    [
        ("(15) s was started before r had stored the call", begun(1)),
        ("(15) s was started before r had stored the call", begun(1, 2, 3, agent="guide")),
        ("(15) s was started before the verdict", begun(1, 2)),
        ("(15) s is the run of a sub-agent, and its parent", tree(a_tree()[1])),
        ("(15) s was started 0 times", tree(a_tree()[0], replace(a_tree()[1], events=()))),
        ("(15) the end of t1.c1, event 4 of r, is that of a run that is not stored", tree(a_tree()[0])),
        ("(15) the end of t1.c1, event 4 of r, says FAILED", told_otherwise(state="FAILED")),
        ("(15) the end of t1.c1, event 4 of r, says 'No.'", told_otherwise(text="No.")),
        ("(15) the end of t1.c1, event 4 of r, is charged 2 turns", told_otherwise(turns=2)),
        ("(15) the end of t1.c1, event 4 of r, is charged 0 tokens", told_otherwise(usage={})),
        ("(15) r was seen to have used 18 tokens", tree(replace(a_tree()[0], tokens=9), a_tree()[1])),
        ("(15) s is FINISHED, and its root r has ended", tree(a_tree()[0], replace(a_tree()[1], ended=False))),
        ("(15) s has ended, and its parent does not know", begun(1, 2, 3, root_ended=False)),
        ("(15) SubAgentEnded still waits for r", tree(*a_tree(), sent=(("r", "SubAgentEnded"),))),
    ],
)
def test_runs_of_a_tree_that_do_not_fit_together_are_found(found: str, seen: StoreSeen) -> None:
    all_found = check(seen, [Line("told", "r", more={"tree_tokens": 18})], final=True)

    assert any(each.startswith(found) for each in all_found), all_found


@pytest.mark.parametrize(("call", "number", "wrong"), [("t1.c1", 0, True), ("t1.c2", 1, False), ("t1.c1", 2, True)])
def test_a_named_event_is_the_result_of_the_call_that_heard_it_first(call: str, number: int, wrong: bool) -> None:
    events = [
        event(1, "RunStarted", "MODEL_THINKING"),
        event(2, "ModelReplied", "EXECUTE_TOOL", turn=1, calls=[{"tool": "wait_for"}, {"tool": "wait_for"}]),
        event(3, "EventHeard", call_id="t1.c1", name="ready", number=1),
        event(4, "EventHeard", call_id=call, name="ready", number=number),
    ]

    assert any(found.startswith("(7) call") for found in check(store(events), [])) is wrong


def test_a_line_that_was_cut_off_never_counted(tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger").write("start", "a", kind="read", turn=1)
    with (tmp_path / "ledger").open("a") as file:
        file.write('{"what": "en')

    assert read_ledger(tmp_path / "ledger") == [Line("start", "a", "read", "", {"turn": 1})]


def test_an_effect_that_raises_has_begun_and_not_ended(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "ledger")

    with pytest.raises(ValueError, match="broken"), book.effect("a", "write", {"x": 1}):
        raise ValueError("broken")

    assert [line.what for line in book.lines()] == ["start"]


def test_a_digest_does_not_depend_on_how_the_arguments_are_written() -> None:
    assert digest_of({"b": 1, "a": "ä"}) == digest_of({"a": "ä", "b": 1})


@pytest.mark.parametrize("module", [ledger, _ledger_calls, _ledger_check, _ledger_store])
def test_the_checker_shares_no_code_with_what_it_checks(module) -> None:
    tree = ast.parse(Path(module.__file__).read_text("utf-8"))
    imported = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]

    ours = {name for name in imported if name.startswith("geartrain")}

    assert all(name.startswith("geartrain.testing._ledger") for name in ours)

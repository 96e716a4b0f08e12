"""The ledger, and each of its checks on evidence made by hand."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from geartrain.testing import _ledger_check, _ledger_store, ledger
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


@pytest.mark.parametrize("module", [ledger, _ledger_check, _ledger_store])
def test_the_checker_shares_no_code_with_what_it_checks(module) -> None:
    tree = ast.parse(Path(module.__file__).read_text("utf-8"))
    imported = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]

    ours = {name for name in imported if name.startswith("geartrain")}

    assert all(name.startswith("geartrain.testing._ledger") for name in ours)

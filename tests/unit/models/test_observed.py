from __future__ import annotations

import json

import pytest

from geartrain.machine import Message, ResultStatus, ToolCall
from geartrain.models._offline._observed import Seen, newest_exchange, observe
from geartrain.models._offline._toolbox import Toolbox
from geartrain.tools import file_tools

BOX = Toolbox.of([tool.spec() for tool in file_tools])


def user(text: str, turn: int = 0, *, pinned: bool = False, note: bool = False) -> Message:
    return Message(role="user", text=text, turn=turn, pinned=pinned, note=note)


def said(text: str) -> Message:
    return Message(role="assistant", text=text)


def called(
    tool: str, result: str, *, status: ResultStatus = ResultStatus.OK, artifact: str = "", **arguments: object
) -> tuple[Message, Message]:
    call = ToolCall(id="t1.c1", tool=tool, arguments=json.dumps(arguments))
    return (
        Message(role="assistant", text="", calls=(call,), turn=1),
        Message(role="tool", text=result, call_id="t1.c1", tool=tool, status=status, artifact=artifact, turn=1),
    )


def seen(*messages: Message) -> Seen:
    return observe(newest_exchange([user("q"), *messages]), BOX)


def test_hits_of_a_search_become_lines_with_path_and_number() -> None:
    text = "a.py:3: def f():\nsub dir/b.py:12:     x = 1: int\n[stopped: there are more than these 2 matches]"

    lines = seen(*called("search_code", text, pattern="x")).lines

    assert lines == {"a.py": {3: "def f():"}, "sub dir/b.py": {12: "    x = 1: int"}}


def test_numbered_lines_become_lines_of_the_file_that_was_read() -> None:
    text = "7: def f():\n8: \n9:     return 1\n[the file goes on; continue with start_line=10]"

    known = seen(*called("read_file", text, path="./a.py", start_line=7, line_count=3))

    assert known.lines == {"a.py": {7: "def f():", 8: "", 9: "    return 1"}}
    assert known.lengths == {}


def test_lines_without_numbers_are_counted_from_the_start_that_was_asked_for() -> None:
    known = seen(*called("read_file", "one\ntwo", path="a.txt", start_line=5))

    assert known.lines == {"a.txt": {5: "one", 6: "two"}}


def test_a_file_that_ends_before_the_lines_asked_for_has_its_length_known() -> None:
    assert seen(*called("read_file", "1: a\n2: b", path="a.txt", line_count=40)).lengths == {"a.txt": 2}
    assert seen(*called("read_file", "1: a\n2: b", path="a.txt", line_count=2)).lengths == {}


def test_an_empty_file_has_no_lines() -> None:
    assert seen(*called("read_file", "(empty file)", path="a.txt")).lines == {}


def test_the_entries_of_a_folder_become_paths_below_the_root() -> None:
    text = "src/\nREADME.md (1,204 bytes)\na link (symbolic link, not followed)\n[3 more entries; list a folder in it]"

    known = seen(*called("list_dir", text, path="x/y"))

    assert list(known.folders) == ["x/y/src"]
    assert list(known.files) == ["x/y/README.md"]
    assert known.sizes == {"x/y/README.md": "1,204"}


def test_a_line_at_the_border_of_what_was_left_out_is_not_taken() -> None:
    text = "1: one\n2: tw\n[… 900 of 1,000 bytes left out; the whole output is artifact abc]\ne: x\n9: nine"

    assert seen(*called("read_file", text, path="a", artifact="abc")).lines == {"a": {1: "one", 9: "nine"}}


def test_the_last_line_of_a_result_that_was_cut_without_a_note_is_not_taken() -> None:
    assert seen(*called("read_file", "1: one\n2: tw", path="a", artifact="abc")).lines == {"a": {1: "one"}}


def test_what_a_tool_adds_to_a_shortened_line_is_no_part_of_it() -> None:
    long = "x" * 300
    known = seen(
        *called("search_code", f"a:1: {long}…\nb:1: wait…", pattern="x"),
        *called("read_file", f"2: {long} [… the line has 5,000 bytes]", path="a"),
    )

    assert known.lines == {"a": {1: long, 2: long}, "b": {1: "wait…"}}


def test_a_line_read_whole_is_kept_when_a_search_shows_less_of_it() -> None:
    known = seen(
        *called("read_file", "1: " + "ab" * 400, path="a"),
        *called("search_code", "a:1: " + "ab" * 150 + "…", pattern="x"),
    )

    assert known.lines["a"][1] == "ab" * 400


@pytest.mark.parametrize("status", [status for status in ResultStatus if status is not ResultStatus.OK])
def test_a_result_that_is_not_ok_is_noted_and_not_read(status: ResultStatus) -> None:
    known = seen(*called("search_code", "a.py:3: def f():", pattern="x", status=status))

    assert known.lines == {}
    assert [made.call.tool for made in known.failed] == ["search_code"]


def test_a_result_is_read_also_when_the_tool_is_no_longer_offered() -> None:
    exchange = newest_exchange([user("q"), *called("search_code", "a.py:3: x", pattern="x")])

    assert observe(exchange, Toolbox.of([])).lines == {"a.py": {3: "x"}}


def test_an_answer_parts_the_conversation_and_the_newest_input_is_asked() -> None:
    exchange = newest_exchange([user("old"), *called("search_code", "a:1: x", pattern="x"), said("a"), user("new")])

    assert [asked.text for asked in exchange.asked] == ["new"]
    assert exchange.earlier == "old"
    assert exchange.made == ()


def test_what_is_said_in_the_course_of_a_run_is_asked_too() -> None:
    steered = newest_exchange([user("first"), *called("search_code", "a:1: x", pattern="x"), user("second", 1)])
    answered = newest_exchange([user("first"), said("an answer"), user("second", 1)])

    assert [(asked.text, asked.round) for asked in steered.asked] == [("first", 0), ("second", 1)]
    assert [asked.text for asked in answered.asked] == ["first", "second"]


@pytest.mark.parametrize(
    "notice",
    [
        user("[Summary of the conversation so far]\nAsked: something", note=True),
        user("[This reply could not be used] it is empty", 1, note=True),
        user("what a provider knows", pinned=True),
        user("   "),
    ],
)
def test_a_notice_is_no_question(notice: Message) -> None:
    assert [asked.text for asked in newest_exchange([user("q"), notice]).asked] == ["q"]


def test_lines_that_a_summary_kept_are_known_again() -> None:
    summary = user("[Summary of the conversation so far]\nAsked: q\na.py:3: def f():", note=True)

    assert observe(newest_exchange([summary, user("q")]), BOX).lines == {"a.py": {3: "def f():"}}

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from geartrain.cli._approver import Answer, answer_of, described
from geartrain.runtime import OpenCall


def asked(arguments: str, **fields: Any) -> OpenCall:
    return OpenCall(
        run_id="r-1",
        call_id="t2.c1",
        tool="write_file",
        arguments=arguments,
        arguments_digest="d",
        waits_for="approval",
        reason="it changes something",
        **fields,
    )


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("y\n", Answer.YES),
        (" YES \n", Answer.YES),
        ("\n", Answer.NO),
        ("n\n", Answer.NO),
        ("v\n", Answer.VIEW),
        ("later\n", Answer.LATER),
        (None, Answer.LATER),
        ("yikes\n", None),
        ("yy\n", None),
    ],
)
def test_only_a_clear_yes_is_a_yes(typed: str | None, answer: Answer | None) -> None:
    assert answer_of(typed) is answer


def test_a_person_sees_the_tool_the_reason_and_a_preview_of_what_is_written() -> None:
    content = "".join(f"line {number}\n" for number in range(30))

    lines = described(asked(json.dumps({"path": "notes.md", "content": content})))

    assert lines[:3] == ["approval needed: write_file (t2.c1)", "  it changes something", "  path: notes.md"]
    assert lines[3] == "  content: 230 bytes, 31 lines"
    assert lines[4] == "    | line 0"
    assert lines[-1] == "    … 19 more lines"


def test_a_call_of_a_sub_agent_is_told_from_one_of_the_root_by_who_made_it() -> None:
    lines = described(asked("{}", agent="bank", path=("t1.c2",)))

    assert lines[0] == "approval needed: write_file (t2.c1 of bank, r-1)"


def test_a_file_that_would_be_replaced_is_named_with_its_size(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("1234")
    old, new = (asked(json.dumps({"path": path, "content": "x"})) for path in ("notes.md", "new.md"))

    assert described(old, root=str(tmp_path))[-1] == "  replaces the file that is there (4 bytes)"
    assert described(new, root=str(tmp_path))[-1] == "  content: x"


def test_all_of_it_can_be_seen() -> None:
    content = "".join(f"line {number}\n" for number in range(30)) + "x" * 500

    lines = described(asked(json.dumps({"content": content})), whole=True)

    assert "    | line 29" in lines
    assert lines[-1] == "    | " + "x" * 500


def test_arguments_cannot_draw_over_the_question() -> None:
    lines = described(asked(json.dumps({"a\x1b[A": "x\r\x1b[2Kpath: harmless"})))

    assert not any("\x1b" in line or "\r" in line for line in lines)


def test_arguments_that_are_no_object_are_shown_as_they_are() -> None:
    assert described(asked("broken"))[-1] == "  arguments: broken"

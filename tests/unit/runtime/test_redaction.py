"""What the rules of an export leave out, and what they do not touch."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geartrain.errors import InvalidValue
from geartrain.runtime._travel._redaction import Redaction


def after(rule: str, body: dict[str, Any], kind: str = "ToolFinished") -> dict[str, Any]:
    return Redaction([rule]).event(kind, body)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=hunter2 and more", "password=[redacted 1] and more"),
        ('{"user": "ops", "password": "hunter2"}', '{"user": "ops", "password": "[redacted 1]"}'),
        ("{'api_key': 'abc'}", "{'api_key': [redacted 1]}"),
        ("Authorization: Bearer abcdefgh.1234", "Authorization: Bearer [redacted 1]"),
        ("postgres://ops:hunter2@host/db", "postgres://ops:[redacted 1]@host/db"),
        ("key sk-abcdefghijklmnopqrst!", "key [redacted 1]!"),
        ("AKIAABCDEFGHIJKLMNOP", "[redacted 1]"),
        ("a\n-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nb", "a\n[redacted 1]\nb"),
        ("-----BEGIN PRIVATE KEY-----\ncut off", "[redacted 1]"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.c2ln", "[redacted 1]"),
        ("the token of the day", "the token of the day"),
        ("the passwords are safe", "the passwords are safe"),
    ],
)
def test_texts_that_look_like_secrets_are_left_out(text: str, shown: str) -> None:
    assert after("secrets", {"text": text}) == {"text": shown}


@pytest.mark.parametrize(
    ("rule", "body", "shown"),
    [
        ("path", {"arguments": '{"path": "/a", "n": 1}'}, {"arguments": '{"path": "[redacted 1]", "n": 1}'}),
        ("secrets", {"context": {"db": {"password": 7}}}, {"context": {"db": {"password": "[redacted 1]"}}}),
        ("text", {"text": "all of it", "id": "x"}, {"text": "[redacted 1]", "id": "x"}),
        ("ToolFinished.text", {"text": "a", "by": "ops"}, {"text": "[redacted 1]", "by": "ops"}),
        ("Other.text", {"text": "a"}, {"text": "a"}),
        ("arguments", {"arguments": '{"a": 1}'}, {"arguments": '{"redacted": "[redacted 1]"}'}),
        ("arguments", {"arguments": "broken"}, {"arguments": "[redacted 1]"}),
        (
            "*.arguments.a",
            {"calls": [{"arguments": '{"a": "x"}'}]},
            {"calls": [{"arguments": '{"a": "[redacted 1]"}'}]},
        ),
        ("context", {"context": {"root": "/a"}}, {"context": {"redacted": "[redacted 1]"}}),
        ("text:[0-9]{4}", {"context": {"n": 1234, "m": 12}}, {"context": {"n": "[redacted 1]", "m": 12}}),
        ("text:ops", {"context": {"ops": True}}, {"context": {"[redacted 1]": True}}),
        ("text:ops", {"context": ["ops", None]}, {"context": ["[redacted 1]", None]}),
        ("list", {"context": {"list": [1, 2]}}, {"context": {"list": ["[redacted 1]"]}}),
        ("text:a=(?P<secret>b)", {"text": "a=b"}, {"text": "a=[redacted 1]"}),
        ("text", {"text": ""}, {"text": ""}),
        ("attempt", {"attempt": 3}, {"attempt": 3}),
        ("verdicts", {"verdicts": [1]}, {"verdicts": [1]}),
        ("key", {"text": '[{"key": "a"}]'}, {"text": '[{"key": "[redacted 1]"}]'}),
    ],
)
def test_a_rule_leaves_out_what_it_names(rule: str, body: dict[str, Any], shown: dict[str, Any]) -> None:
    assert after(rule, body) == shown


@pytest.mark.parametrize("rule", ["password", "secrets", "Spec.tools.*.parameters.*"])
def test_the_names_of_a_tools_parameters_are_no_fields(rule: str) -> None:
    schema = {"properties": {"password": {"type": "string", "description": "ops's"}}}
    spec = {"tools": [{"name": "login", "parameters": schema}]}

    assert Redaction([rule]).spec(spec) == spec
    assert "ops" not in json.dumps(Redaction(["text:ops"]).spec(spec))


def test_the_words_by_which_a_run_finds_its_parts_are_passed_over() -> None:
    body = {"id": "t1.c1", "call_id": "t1.c1", "tool": "t1", "text": "t1", "labels": {"id": "t1"}}

    assert after("text:t1", body) == {**body, "text": "[redacted 1]", "labels": {"id": "[redacted 1]"}}


def test_what_a_tool_traced_is_its_own_and_no_word_of_ours() -> None:
    traced = {"name": "login of ops", "time": 1234.0, "payload": {"code": "ops", "password": "x", "n": 1234}}

    shown = Redaction(["secrets", "text:ops", "text:1234"]).event("ToolFinished", {"traced": [traced]})

    payload = {"code": "[redacted 1]", "password": "[redacted 2]", "n": "[redacted 3]"}
    assert shown == {"traced": [{"name": "login of [redacted 1]", "time": 1234.0, "payload": payload}]}


def test_the_same_text_has_the_same_number_and_another_text_another() -> None:
    redaction = Redaction(["text:[a-z]+@[a-z]+"])

    texts = [redaction.text(text) for text in ("a@x", "b@y and a@x")]

    assert texts == ["[redacted 1]", "[redacted 2] and [redacted 1]"]


def test_lengths_are_kept_where_they_are_to_be() -> None:
    redaction = Redaction(["ToolFinished.text"], lengths=True)

    shown = [redaction.event("ToolFinished", {"text": "x" * count})["text"] for count in (3, 12, 40)]

    assert [len(text) for text in shown] == [3, 12, 40]
    assert not any("x" in text for text in shown)


def test_what_a_key_said_first_is_left_out_although_it_says_something_else_later() -> None:
    shown = after("secrets", {"text": '{"password": "hunter2", "password": ""}'})["text"]

    assert "hunter2" not in shown


def test_json_without_end_is_left_out_as_a_whole() -> None:
    deep = '{"a":' * 900 + '"ops"' + "}" * 900

    assert "ops" not in after("text:ops", {"arguments": deep})["arguments"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def said(value: Any) -> str:
    """All that JSON data says, wherever it says it."""
    if isinstance(value, dict):
        return "\n".join([*value, *map(said, value.values())])
    if isinstance(value, list):
        return "\n".join(map(said, value))
    try:
        inner = json.loads(value) if isinstance(value, str) else None
    except ValueError:
        inner = None
    return said(inner) if isinstance(inner, dict | list) else str(value)


@given(secret=st.text(min_size=4).map(lambda text: f"§{text}"), around=JSON, depth=st.integers(0, 3))
def test_a_text_that_is_looked_for_is_nowhere_left_however_deep_it_stands(secret: str, around: Any, depth: int) -> None:
    data: Any = {"a": [around, secret], secret: f"so {secret}"}
    for _ in range(depth):
        data = {"inner": json.dumps(data), "of": [around]}
    redaction = Redaction([f"text:{re.escape(secret)}"])

    shown = redaction.event("RunStarted", {"type": "RunStarted", "input": secret, "context": data})

    assert secret not in said(shown)


@given(context=st.dictionaries(st.text(), JSON), text=st.text())
def test_what_no_rule_names_stays_as_it_is(context: dict[str, Any], text: str) -> None:
    body = {"type": "RunStarted", "input": text, "context": context, "arguments": json.dumps(context)}

    assert Redaction(["text:§§§nowhere§§§", "no_such_field"]).event("RunStarted", body) == body


def test_arguments_keep_their_form_and_their_digests_are_told() -> None:
    redaction = Redaction(["secrets"])

    shown = redaction.event("ModelReplied", {"calls": [{"tool": "login", "arguments": '{"token": "abc"}'}]})

    assert json.loads(shown["calls"][0]["arguments"]) == {"token": "[redacted 1]"}
    assert len(redaction.digests) == 1


@pytest.mark.parametrize("rule", ["", "text:", "text:(", "text:a*", "two words", "a/b", "name:x"])
def test_a_rule_that_is_none_is_refused(rule: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        Redaction([rule])

    assert "redaction rule" in str(refused.value)


def test_what_a_text_rule_looks_for_is_not_told() -> None:
    assert Redaction(["secrets", "text:hunter2", "by"]).told == ("secrets", "text", "by")

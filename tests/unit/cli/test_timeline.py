from __future__ import annotations

from typing import Any

import pytest

from geartrain.cli._timeline import line_of, local_time, shown_time
from geartrain.trace import TraceRecord

CALL = {"call_id": "t1.c1", "tool": "write_file"}


def line(event: str, **payload: Any) -> str:
    return line_of(TraceRecord(run_id="r-1", event=event, ts=0.0, payload=payload))


@pytest.mark.parametrize(
    ("event", "payload", "shown"),
    [
        ("run_started", {"agent": "a", "input": "why?", "principal": "ops"}, "started by ops, agent a: why?"),
        ("state_transition", {"from": "A", "to": "OBSERVE"}, "OBSERVE"),
        (
            "state_transition",
            {"from": "A", "to": "SUSPENDED", "holds": ["approval(t1.c1)"]},
            "SUSPENDED, waits for approval(t1.c1)",
        ),
        (
            "llm_call_started",
            {"turn": 2, "attempt": 2, "messages": 1, "input_tokens_estimated": 10, "tools": False},
            "model asked for turn 2, attempt 2: 1 message, about 10 tokens, without tools",
        ),
        (
            "llm_call_finished",
            {"input_tokens": 5, "output_tokens": 6, "usage_estimated": False, "calls": 1, "text": "look"},
            "model replied, 5 + 6 tokens, 1 call: look",
        ),
        (
            "llm_call_finished",
            {
                "model": "plan",
                "input_tokens": 0,
                "output_tokens": 0,
                "usage_estimated": False,
                "calls": 2,
                "text": "",
            },
            "plan replied, 2 calls",
        ),
        (
            "event_published",
            {"run_id": "r-2", "call_id": "t1.c1", "name": "ready", "payload": "all of it"},
            "published by run r-2: 'ready': all of it",
        ),
        ("event_published", {"run_id": "r-2", "call_id": "t1.c1", "name": "ready"}, "published by run r-2: 'ready'"),
        ("event_awaited", {"run_id": "r-3", "name": "ready"}, "run r-3 waits for 'ready'"),
        ("event_awaited", {"run_id": "r-3", "name": "ready", "after": 2}, "run r-3 waits for 'ready' after number 2"),
        ("event_heard", {"call_id": "t1.c1", "name": "ready", "number": 3}, "t1.c1 is told of 'ready', number 3"),
        ("llm_call_finished", {"code": "model_failed", "error": "down"}, "model failed (model_failed): down"),
        ("pause_requested", {"by": "ops", "reason": "lunch"}, "pause asked for by ops: lunch"),
        ("run_resumed", {"by": "ops"}, "resumed by ops"),
        ("run_recovered", {"attempt": 2}, "recovered, time 2"),
        ("run_recovered", {"attempt": 2, "reason": "shutdown", "clean": True}, "recovered after a shutdown, time 2"),
        (
            "run_recovered",
            {"attempt": 3, "reason": "crash", "alone": True},
            "recovered after a crash, time 3, alone, as it may have killed its process",
        ),
        (
            "actor_restarted",
            {"reason": "KeyError: x", "restarts": 2, "aside": "ModelReplied"},
            "crash of ModelReplied, restart 2: KeyError: x",
        ),
        (
            "run_quarantined",
            {"reason": "KeyError: x", "restarts": 3, "aside": "InputReceived", "aside_id": "e-1"},
            "quarantined after 3 restarts at InputReceived e-1: KeyError: x",
        ),
        ("run_quarantined", {"reason": "agent gone"}, "quarantined: agent gone"),
        ("cancel_requested", {"code": "cancelled_by_user"}, "cancel asked for"),
        ("tool_call_requested", {**CALL, "arguments": '{"path":"x"}'}, 'call t1.c1 write_file(path="x")'),
        ("tool_call_requested", {**CALL, "arguments": "{}", "step": "save"}, "call t1.c1 write_file() for step save"),
        (
            "permission_evaluated",
            {**CALL, "verdict": "deny", "reason": "no", "approved_before": True, "withdrawn": ["read_only"]},
            "policy says deny to t1.c1 write_file, asked again after the approval, no longer read_only: no",
        ),
        (
            "permission_evaluated",
            {**CALL, "verdict": "ask", "rule": "drafts", "arguments": '{"path":"y"}', "error": "hm"},
            'policy (drafts) says ask to t1.c1 write_file, arguments changed to {"path":"y"} [hm]',
        ),
        (
            "permission_evaluated",
            {"call_id": "t2.answer", "tool": "guard:answer", "role": "answer", "verdict": "deny", "guard": "polite"},
            "guardrail polite says deny to t2.answer the run's answer",
        ),
        (
            "guardrail",
            {**CALL, "guard": "limits", "verdict": "change", "reason": "less", "error": "x"},
            "guardrail limits: change t1.c1 write_file: less [x]",
        ),
        (
            "approval_requested",
            {"call_id": "t1.i1", "tool": "guard:input", "role": "input", "reason": "odd"},
            "approval wanted for t1.i1 the run's input: odd",
        ),
        (
            "approval_decided",
            {**CALL, "decision": "approved", "by": "desk", "remember": "run", "reason": "ok"},
            "approved by desk: t1.c1 write_file, for the rest of this run: ok",
        ),
        ("approval_decided", {"call_id": "t1.c1", "decision": "expired", "by": "runtime"}, "expired by runtime: t1.c1"),
        ("tool_call_started", {**CALL, "attempt": 2}, "write begins: t1.c1 write_file, attempt 2"),
        (
            "tool_call_finished",
            {**CALL, "status": "error", "text": "no such file", "size": 1_200, "tries": 2},
            "result t1.c1 write_file error after 2 tries, 1,200 bytes: no such file",
        ),
        ("approval_requested", {**CALL, "reason": ""}, "approval wanted for t1.c1 write_file"),
        ("approval_requested", {**CALL, "reason": "it writes"}, "approval wanted for t1.c1 write_file: it writes"),
        (
            "llm_call_started",
            {
                "turn": 9,
                "attempt": 1,
                "messages": 30,
                "input_tokens_estimated": 9,
                "tools": True,
                "shortened": 4,
                "dropped": 2,
            },
            "model asked for turn 9: 30 messages, about 9 tokens (4 shortened, 2 dropped before)",
        ),
        (
            "context_prepared",
            {"providers": ["memory", "clock"], "notes": 3, "pinned": 1, "size": 1_200},
            "context: memory, clock told 3 notes, 1,200 characters, 1 pinned",
        ),
        ("context_prepared", {"providers": [], "notes": 0, "pinned": 0, "size": 0}, "context: nothing was told"),
        (
            "context_compacted",
            {"how": "window", "messages_dropped": 2, "bytes_saved": 1_200, "messages": 5},
            "context: 2 oldest messages dropped, 1,200 bytes fewer",
        ),
        (
            "context_compacted",
            {"how": "shrink", "messages_shortened": 2, "bytes_saved": 9, "calls": ["t1.c1", "t2.c1"]},
            "context: 2 old results shrunk to a line each (t1.c1, t2.c1), 9 bytes fewer",
        ),
        (
            "context_compacted",
            {"how": "summary", "messages_dropped": 9, "bytes_saved": 10, "summary": "all\nwell"},
            "context: 9 oldest messages replaced by a summary, 10 bytes fewer: all well",
        ),
        ("context_compacted", {"how": "cut", "messages_shortened": 1}, "context: 1 message cut to fit"),
        ("context_compacted", {"how": "summary refused", "summary": "x"}, "context: summary refused: x"),
        ("context_compacted", {"how": "summary failed", "messages": 5, "error": "down"}, "no summary: down"),
        ("write_in_doubt", {**CALL, "reason": "time-out"}, "in doubt: t1.c1 write_file: time-out"),
        ("call_settled", {"call_id": "t1.c1", "outcome": "done", "by": "audit"}, "settled by audit: t1.c1 done"),
        ("input_received", {"by": "audit", "text": "hurry"}, "audit says: hurry"),
        ("checkpoint_saved", {"seq": 4, "messages": 3}, "checkpoint saved, 3 messages"),
        ("handoff", {"from": "a", "to": "b", "spec": "x"}, "handed from a to b"),
        (
            "run_finished",
            {
                "state": "FAILED",
                "turn_count": 1,
                "input_tokens": 2,
                "output_tokens": 3,
                "tool_calls": 0,
                "code": "timeout",
                "kind": "budget",
                "message": "too long",
            },
            "ended FAILED, 1 turn, 0 calls, 2 + 3 tokens: timeout (budget): too long",
        ),
        ("run_archived", {"attempt": 1, "empty": ""}, "run archived: attempt=1"),
    ],
)
def test_each_record_has_its_line(event: str, payload: dict[str, Any], shown: str) -> None:
    assert line(event, **payload) == shown


def test_a_payload_of_another_version_is_shown_all_the_same() -> None:
    assert line("tool_call_started", call="t1.c1") == "tool call started: call=t1.c1"


def test_a_line_is_safe_and_short_whatever_the_record_holds() -> None:
    shown = line("input_received", by="\x1b[31m", text="a\nb\r" * 1_000)

    assert "\x1b" not in shown
    assert "\n" not in shown
    assert len(shown) <= 160


@pytest.mark.parametrize("seconds", [1e300, 1e14, 253402400000.0])
def test_a_time_that_no_calendar_has_is_shown_as_the_last_or_the_first_there_is(seconds: float) -> None:
    assert shown_time(seconds).startswith("9999-12-31")
    assert (local_time(-seconds).year, local_time(-seconds).month) == (1, 1)

"""A trace record as a line for people: pure, and the only place that knows how each looks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from geartrain.cli._text import counted, one_line, shown_arguments
from geartrain.trace import TraceRecord

Payload = Mapping[str, Any]
_WIDE: Final = 160
# The model of an agent whose turns a plan takes, at no cost.
_PLAN: Final = "plan"


def line_of(record: TraceRecord) -> str:
    """Return what a record says, in one safe line."""
    shown = _LINES.get(record.event)
    try:
        return shown(record.payload) if shown is not None else _other(record)
    except (KeyError, TypeError, ValueError):  # a payload of another version
        return _other(record)


def local_time(seconds: float) -> datetime:
    """Return a time in the time zone of whoever looks; the first or the last there is for one that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds).astimezone()
    except (OverflowError, ValueError, OSError):  # a hand-made event, an age of ten thousand years
        return datetime(9999, 12, 31, tzinfo=UTC) if seconds > 0 else datetime(1, 1, 1, tzinfo=UTC)


def shown_time(seconds: float | None) -> str:
    """Return a local date and time; nothing for none."""
    return f"{local_time(seconds):%Y-%m-%d %H:%M:%S}" if seconds else ""


def _other(record: TraceRecord) -> str:
    name, fields = record.event.replace("_", " "), _fields(record.payload)
    return one_line(f"{name}: {fields}" if fields else name, _WIDE)


def _fields(payload: Payload) -> str:
    return ", ".join(f"{key}={value}" for key, value in payload.items() if value not in ("", None, [], {}))


def _started(payload: Payload) -> str:
    by = f" by {payload['principal']}" if payload.get("principal") else ""
    return one_line(f"started{by}, agent {payload['agent']}: {payload['input']}", _WIDE)


def _state(payload: Payload) -> str:
    holds = f", waits for {', '.join(payload['holds'])}" if payload.get("holds") else ""
    return one_line(f"{payload['to']}{holds}", _WIDE)


def _model_asked(payload: Payload) -> str:
    again = f", attempt {payload['attempt']}" if payload["attempt"] > 1 else ""
    size = f"{counted(payload['messages'], 'message')}, about {counted(payload['input_tokens_estimated'], 'token')}"
    less = [
        *([f"{payload['shortened']:,} shortened"] if payload.get("shortened") else []),
        *([f"{payload['dropped']:,} dropped before"] if payload.get("dropped") else []),
    ]
    size += f" ({', '.join(less)})" if less else ""
    return f"model asked for turn {payload['turn']}{again}: {size}{'' if payload['tools'] else ', without tools'}"


def _model_replied(payload: Payload) -> str:
    if "error" in payload:
        return one_line(f"model failed ({payload['code']}): {payload['error']}", _WIDE)
    tokens = f"{payload['input_tokens']:,} + {payload['output_tokens']:,} tokens"
    about = "about " if payload["usage_estimated"] else ""
    what = f", {counted(payload['calls'], 'call')}" if payload["calls"] else ""
    anomaly = f", not usable: {payload['anomaly']}" if payload.get("anomaly") else ""
    text = f": {payload['text']}" if payload["text"] else ""
    head = "plan replied" if payload.get("model") == _PLAN else f"model replied, {about}{tokens}"
    return one_line(f"{head}{what}{anomaly}{text}", _WIDE)


def _requested(payload: Payload) -> str:
    arguments = shown_arguments(payload["arguments"], _WIDE - 40)
    step = f" for step {payload['step']}" if payload.get("step") else ""
    return one_line(f"call {payload['call_id']} {payload['tool']}({arguments}){step}", _WIDE)


def _evaluated(payload: Payload) -> str:
    reason = f": {payload['reason']}" if payload.get("reason") else ""
    problem = f" [{payload['error']}]" if payload.get("error") else ""
    again = ", asked again after the approval" if payload.get("approved_before") else ""
    changed = f", arguments changed to {payload['arguments']}" if payload.get("arguments") else ""
    withdrawn = f", no longer {', '.join(payload['withdrawn'])}" if payload.get("withdrawn") else ""
    who = f"guardrail {payload['guard']}" if payload.get("guard") else f"policy{_rule(payload)}"
    verdict = f"{who} says {payload['verdict']} to {_about(payload)}"
    return one_line(f"{verdict}{again}{withdrawn}{changed}{reason}{problem}", _WIDE)


def _about(payload: Payload) -> str:
    """Return what was judged: a call of a tool, or the run's input or answer."""
    what = f"the run's {payload['role']}" if payload.get("role") else payload.get("tool", "")
    return f"{payload['call_id']} {what}"


def _rule(payload: Payload) -> str:
    return f" ({payload['rule']})" if payload.get("rule") else ""


def _guardrail(payload: Payload) -> str:
    reason = f": {payload['reason']}" if payload.get("reason") else ""
    problem = f" [{payload['error']}]" if payload.get("error") else ""
    about = f"guardrail {payload['guard']}: {payload['verdict']} {_about(payload)}"
    return one_line(f"{about}{reason}{problem}", _WIDE)


def _approval_wanted(payload: Payload) -> str:
    until = f", until {shown_time(payload['expires_at'])}" if payload.get("expires_at") else ""
    reason = f": {payload['reason']}" if payload.get("reason") else ""
    return one_line(f"approval wanted for {_about(payload)}{until}{reason}", _WIDE)


def _approval_decided(payload: Payload) -> str:
    reason = f": {payload['reason']}" if payload.get("reason") else ""
    edited = f", arguments changed to {payload['arguments']}" if payload.get("arguments") else ""
    remember = ", for the rest of this run" if payload.get("remember") else ""
    tool = f" {payload['tool']}" if payload.get("tool") else ""
    decided = f"{payload['decision']} by {payload['by']}: {payload['call_id']}{tool}"
    return one_line(f"{decided}{remember}{edited}{reason}", _WIDE)


def _sub_agent_started(payload: Payload) -> str:
    return one_line(f"{payload['call_id']} {payload['agent']} starts as run {payload['run_id']}", _WIDE)


def _published(payload: Payload) -> str:
    told = f": {payload['payload']}" if payload.get("payload") else ""
    return one_line(f"published by run {payload['run_id']}: {payload['name']!r}{told}", _WIDE)


def _awaited(payload: Payload) -> str:
    after = f" after number {payload['after']}" if payload.get("after") else ""
    return one_line(f"run {payload['run_id']} waits for {payload['name']!r}{after}", _WIDE)


def _heard(payload: Payload) -> str:
    return one_line(f"{payload['call_id']} is told of {payload['name']!r}, number {payload['number']}", _WIDE)


def _tool_started(payload: Payload) -> str:
    again = f", attempt {payload['attempt']}" if payload["attempt"] > 1 else ""
    return one_line(f"write begins: {payload['call_id']} {payload['tool']}{again}", _WIDE)


def _tool_finished(payload: Payload) -> str:
    by = f" by {payload['by']}" if payload.get("by") else ""
    tries = f" after {payload['tries']} tries" if payload.get("tries") else ""
    verified = f", verified: {payload['verified'].replace('_', ' ')}" if payload.get("verified") else ""
    size = f", {payload['size']:,} bytes" if payload["size"] else ""
    head = f"result {payload['call_id']} {payload['tool']} {payload['status']}{by}{tries}{verified}{size}"
    return one_line(f"{head}: {payload['text']}" if payload["text"] else head, _WIDE)


def _in_doubt(payload: Payload) -> str:
    reason = f": {payload['reason']}" if payload.get("reason") else ""
    return one_line(f"in doubt: {payload['call_id']} {payload['tool']}{reason}", _WIDE)


def _settled(payload: Payload) -> str:
    return one_line(f"settled by {payload['by']}: {payload['call_id']} {payload['outcome']}", _WIDE)


def _input(payload: Payload) -> str:
    return one_line(f"{payload['by']} says: {payload['text']}", _WIDE)


def _asked_for(what: str) -> Callable[[Payload], str]:
    def line(payload: Payload) -> str:
        by = f" by {payload['by']}" if payload.get("by") else ""
        reason = f": {payload['reason']}" if payload.get("reason") else ""
        return one_line(f"{what}{by}{reason}", _WIDE)

    return line


def _recovered(payload: Payload) -> str:
    why = f" after a {payload['reason']}" if payload.get("reason") in ("crash", "shutdown") else ""
    alone = ", alone, as it may have killed its process" if payload.get("alone") else ""
    return f"recovered{why}, time {payload['attempt']}{alone}"


def _restarted(payload: Payload) -> str:
    aside = f" of {payload['aside']}" if payload.get("aside") else ""
    return one_line(f"crash{aside}, restart {payload['restarts']}: {payload['reason']}", _WIDE)


def _quarantined(payload: Payload) -> str:
    aside = f" at {payload['aside']} {payload.get('aside_id', '')}".rstrip() if payload.get("aside") else ""
    after = f" after {counted(payload['restarts'], 'restart')}" if payload.get("restarts") else ""
    return one_line(f"quarantined{after}{aside}: {payload['reason']}", 400)


def _answer_wanted(payload: Payload) -> str:
    return one_line(f"waits outside for an answer to {payload['call_id']} {payload['tool']}", _WIDE)


def _turn_taken(payload: Payload) -> str:
    what = f" with {counted(payload['calls'], 'call')}" if payload["calls"] else ""
    text = f": {payload['text']}" if payload["text"] else ""
    return one_line(f"turn taken by {payload['by']}{what}{text}", _WIDE)


def _checkpoint(payload: Payload) -> str:
    return f"checkpoint saved, {counted(payload['messages'], 'message')}"


def _compacted(payload: Payload) -> str:
    how, saved = payload["how"], f", {payload['bytes_saved']:,} bytes fewer" if payload.get("bytes_saved") else ""
    text = f": {payload['summary']}" if payload.get("summary") else ""
    match how:
        case "window":
            what = f"context: {counted(payload.get('messages_dropped', 0), 'oldest message')} dropped"
        case "summary":
            what = f"context: {counted(payload['messages_dropped'], 'oldest message')} replaced by a summary"
        case "shrink":
            named = f" ({', '.join(payload['calls'])})" if payload.get("calls") else ""
            what = f"context: {counted(payload['messages_shortened'], 'old result')} shrunk to a line each{named}"
        case "cut":
            what = f"context: {counted(payload['messages_shortened'], 'message')} cut to fit"
        case _:
            what = f"context: {how}"
    problem = f"no summary: {payload['error']}" if payload.get("error") else ""
    return one_line(f"{problem or what}{saved}{text}", _WIDE)


def _prepared(payload: Payload) -> str:
    told = f"{', '.join(payload['providers'])} told {counted(payload['notes'], 'note')}, {payload['size']:,} characters"
    pinned = f", {payload['pinned']} pinned" if payload["pinned"] else ""
    return one_line(f"context: {told}{pinned}" if payload["notes"] else "context: nothing was told", _WIDE)


def _handed_off(payload: Payload) -> str:
    return one_line(f"handed from {payload['from']} to {payload['to']}", _WIDE)


def _finished(payload: Payload) -> str:
    tokens = f"{payload['input_tokens']:,} + {payload['output_tokens']:,} tokens"
    used = f"{counted(payload['turn_count'], 'turn')}, {counted(payload['tool_calls'], 'call')}, {tokens}"
    by = f" by {payload['by']}" if payload.get("by") else ""
    why = f": {payload['code']} ({payload['kind']}): {payload['message']}" if payload.get("code") else ""
    return one_line(f"ended {payload['state']}{by}, {used}{why}", _WIDE)


def _stuck(payload: Payload) -> str:
    return one_line(f"stuck: {payload['cause']}: {payload['about']} ({payload['action']})", _WIDE)


_LINES: Final[Mapping[str, Callable[[Payload], str]]] = MappingProxyType(
    {
        "run_started": _started,
        "state_transition": _state,
        "llm_call_started": _model_asked,
        "llm_call_finished": _model_replied,
        "tool_call_requested": _requested,
        "permission_evaluated": _evaluated,
        "guardrail": _guardrail,
        "approval_requested": _approval_wanted,
        "approval_decided": _approval_decided,
        "sub_agent_started": _sub_agent_started,
        "event_published": _published,
        "event_awaited": _awaited,
        "event_heard": _heard,
        "tool_call_started": _tool_started,
        "tool_call_finished": _tool_finished,
        "write_in_doubt": _in_doubt,
        "call_settled": _settled,
        "input_received": _input,
        "pause_requested": _asked_for("pause asked for"),
        "run_resumed": _asked_for("resumed"),
        "cancel_requested": _asked_for("cancel asked for"),
        "run_recovered": _recovered,
        "actor_restarted": _restarted,
        "run_quarantined": _quarantined,
        "answer_requested": _answer_wanted,
        "turn_taken": _turn_taken,
        "checkpoint_saved": _checkpoint,
        "context_prepared": _prepared,
        "context_compacted": _compacted,
        "handoff": _handed_off,
        "run_finished": _finished,
        "run_stuck": _stuck,
    }
)

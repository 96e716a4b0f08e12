"""Guard calls: what is said to a run, and the answer that it would finish with, judged before they count.

    to_model, something was said → guard_inputs → WAIT_APPROVAL → hear → the model
    decide, an answer            → guard_answer → WAIT_APPROVAL → FINISHED, or told to the model

A guard call holds its text as arguments, `{"text": …}`. It is judged, asked about, edited, remembered and expired like
the call of a tool. But it is nobody's tool: it never runs, is not counted, can be neither answered nor settled, and
enters the context as what was said.

Rule 1: guard calls are open only while no other call is: inputs are judged before the model is asked, an answer when
all calls are done. What is said meanwhile waits its turn.
Rule 2: being allowed is not passing: what was allowed before the run was held is judged again when it goes on.
Rule 3: an answer always finishes: no budget ends a run whose answer is being judged, for that uses nothing up.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from geartrain.ids import digest
from geartrain.machine._context import say
from geartrain.machine._draft import Draft
from geartrain.machine._ending import fail
from geartrain.machine._run import Call
from geartrain.machine._shorten import brief
from geartrain.machine._states import ALLOWED, ReasonCode, ResultStatus, RunState
from geartrain.machine._values import CallResult, Message

# No tool can have such a name, so that nothing remembered about a tool is ever taken for a text, or the other way.
GUARD_PREFIX: Final = "guard:"

_DENIED: Final = {"input": ReasonCode.INPUT_DENIED, "answer": ReasonCode.OUTPUT_DENIED}


class _Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str


_decoder: Final = msgspec.json.Decoder(_Text)


def guard_arguments(text: str) -> str:
    """Return *text* as the arguments of a guard call."""
    return msgspec.json.encode(_Text(text)).decode()


def guard_text(arguments: str) -> str:
    """Return the text that the arguments of a guard call hold; an empty one if they are none."""
    try:
        return _decoder.decode(arguments).text
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ""


def text_problem(arguments: str) -> str:
    """Return what is wrong with arguments that a person edited, or an empty text."""
    return "" if guard_text(arguments).strip() else 'they must be {"text": "…"}, and the text not empty'


def guard_inputs(draft: Draft) -> bool:
    """Have everything judged that was said and not heard yet; return whether there is any."""
    run = draft.run
    if not run.queued_input or "input" not in draft.spec.guarded:
        return False
    turn, judged = run.turn_count + 1, run.inputs_judged
    calls = tuple(
        _guard(draft, "input", f"t{turn}.i{judged + 1 + i}", text, pinned=i in run.queued_pinned)
        for i, text in enumerate(run.queued_input)
    )
    draft.set(queued_input=(), queued_pinned=(), inputs_judged=judged + len(calls))
    _open(draft, calls)
    return True


def guard_answer(draft: Draft, text: str) -> bool:
    """Have an answer judged; return whether that is needed."""
    if "answer" not in draft.spec.guarded:
        return False
    _open(draft, (_guard(draft, "answer", f"t{draft.run.turn_count}.answer", text),))
    return True


def _open(draft: Draft, calls: tuple[Call, ...]) -> None:
    # Verdicts that are on their way are about calls that are no more.
    draft.set(calls=calls, evaluations=draft.run.evaluations + 1)
    if draft.run.state is RunState.WAIT_APPROVAL:
        draft.set(entered_at=draft.now)  # what was judged there is heard, and more was said meanwhile
    else:
        draft.enter(RunState.WAIT_APPROVAL)


def _guard(draft: Draft, role: Literal["input", "answer"], own_id: str, text: str, *, pinned: bool = False) -> Call:
    arguments = guard_arguments(text)
    return Call(
        id=own_id,
        role=role,
        tool=GUARD_PREFIX + role,
        arguments=arguments,
        arguments_digest=digest(arguments.encode("utf-8", "surrogatepass")),
        since=draft.now,
        read_only=True,
        pinned=pinned,
    )


def hear(draft: Draft) -> None:
    """Let the model hear what has passed; of what has not, only that something was said."""
    turn = draft.run.turn_count
    for call in draft.run.calls:
        if call.status is ALLOWED:
            say(draft, Message(role="user", text=guard_text(call.arguments), turn=turn, pinned=call.pinned))
        else:
            assert call.result is not None, f"guard call {call.id} is {call.status}"
            text = brief(f"[Something was said and not let through] {call.result.text}")
            say(draft, Message(role="user", text=text, turn=turn, note=True))
    draft.set(calls=(), unheard=False)


def deny_guard(draft: Draft, call: Call, code: ReasonCode, text: str, by: str) -> None:
    """Deny an input or an answer: end the run, or go on without it, as the agent says.

    Without its own input a run has nothing to do, and ends however the agent takes denials.
    """
    draft.finish_call(call, CallResult(status=ResultStatus.DENIED, text=text, size=len(text), by=by))
    own_input = draft.run.unheard and call.id == draft.run.calls[0].id
    if draft.spec.on_denied == "fail" or own_input:
        code = _DENIED[call.role] if code is ReasonCode.TOOL_DENIED else code
        fail(draft, code, f"the {call.role} ({call.id}) was not let through: {text}", by)

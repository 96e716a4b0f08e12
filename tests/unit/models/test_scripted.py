from __future__ import annotations

import asyncio
import pickle

import pytest

from geartrain.errors import InvalidValue
from geartrain.machine import Message, RequestedCall
from geartrain.models import (
    Attempts,
    Delay,
    Model,
    ModelNotFound,
    ModelRejected,
    ModelReply,
    ModelRequest,
    ModelUnavailable,
    OfflineModel,
    ScriptedModel,
    answer,
    call,
    find_model,
)


def request(turn: int = 1, attempt: int = 1, *, purpose: str = "reply") -> ModelRequest:
    messages = (Message(role="user", text="go on"), Message(role="assistant", text="yes"))
    return ModelRequest(run_id="r-1", agent="tester", turn=turn, attempt=attempt, messages=messages, purpose=purpose)


def silent(_: str) -> None:
    pass


async def test_entry_i_answers_turn_i_plus_one_whatever_was_asked_before() -> None:
    model = ScriptedModel(["one", "two", "three"])

    texts = [(await model.reply(request(turn), silent)).text for turn in (3, 1, 2, 1)]

    assert texts == ["three", "one", "two", "one"]


async def test_a_second_model_with_the_same_script_goes_on_where_the_first_stopped() -> None:
    script = [[call("look", path="a")], "done"]

    first = await ScriptedModel(script).reply(request(1), silent)
    second = await ScriptedModel(script).reply(request(2), silent)

    assert first.calls == (RequestedCall(tool="look", arguments='{"path": "a"}'),)
    assert second.text == "done"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("text", ModelReply(text="text")),
        (answer("text"), ModelReply(text="text")),
        (ModelReply(text="cut", finish_reason="length"), ModelReply(text="cut", finish_reason="length")),
        ([call("a")], ModelReply(calls=(RequestedCall(tool="a"),), finish_reason="tool_calls")),
        ((call("a"), call("b")), ModelReply(calls=(call("a"), call("b")), finish_reason="tool_calls")),
        (lambda asked: f"turn {asked.turn}", ModelReply(text="turn 1")),
        (lambda _: [call("a")], ModelReply(calls=(call("a"),), finish_reason="tool_calls")),
        (Attempts("first", "second"), ModelReply(text="first")),
        (Delay(5, then=Attempts(lambda _: "deep")), ModelReply(text="deep")),
    ],
)
async def test_each_kind_of_entry_becomes_a_reply(entry: object, expected: ModelReply) -> None:
    assert await ScriptedModel([entry]).reply(request(), silent) == expected


async def test_attempts_play_one_entry_each_and_the_last_one_ever_after() -> None:
    model = ScriptedModel([Attempts(ModelUnavailable("scripted", "busy"), "fine")])

    with pytest.raises(ModelUnavailable):
        await model.reply(request(attempt=1), silent)
    later = [(await model.reply(request(attempt=attempt), silent)).text for attempt in (2, 3, 9)]

    assert later == ["fine", "fine", "fine"]


async def test_a_delay_waits_its_seconds_before_it_replies() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()

    reply = await ScriptedModel([Delay(90, then="late")]).reply(request(), silent)

    assert reply.text == "late"
    assert loop.time() - began == pytest.approx(90)


async def test_an_exception_is_raised_each_time_without_the_tracebacks_of_before() -> None:
    error = ModelUnavailable("scripted", "busy", retry_after_seconds=2)
    model = ScriptedModel([error])

    depths = []
    for _ in range(3):
        with pytest.raises(ModelUnavailable) as raised:
            await model.reply(request(), silent)
        depths.append(len(raised.traceback))

    assert depths[0] == depths[1] == depths[2]


@pytest.mark.parametrize("turn", [0, 3, 100])
async def test_a_turn_that_the_script_lacks_is_rejected_with_the_number_of_replies(turn: int) -> None:
    with pytest.raises(ModelRejected, match=f"turn {turn} was asked for, the script has 2 replies"):
        await ScriptedModel(["one", "two"]).reply(request(turn), silent)


async def test_a_repeating_script_starts_again_after_its_last_reply() -> None:
    model = ScriptedModel(["a", "b"], repeat=True)

    assert [(await model.reply(request(turn), silent)).text for turn in range(1, 6)] == ["a", "b", "a", "b", "a"]


async def test_a_repeating_script_without_replies_is_rejected() -> None:
    with pytest.raises(ModelRejected, match="0 replies"):
        await ScriptedModel([], repeat=True).reply(request(), silent)


@pytest.mark.parametrize("entry", [7, None, [1], ["text in a list"]])
async def test_an_entry_of_no_known_kind_is_rejected_with_its_value(entry: object) -> None:
    with pytest.raises(ModelRejected, match="must be a reply, a text, calls"):
        await ScriptedModel([entry]).reply(request(), silent)


async def test_an_entry_that_yields_itself_is_rejected_and_does_not_hang() -> None:
    def again(_: ModelRequest) -> object:
        return again

    with pytest.raises(ModelRejected, match="nested more than 16 deep"):
        await ScriptedModel([again]).reply(request(), silent)


async def test_a_request_to_compact_is_answered_by_the_summary_and_takes_no_reply() -> None:
    model = ScriptedModel(["one"])
    own = ScriptedModel(["one"], summary=lambda asked: f"{len(asked.messages)} in short")

    assert (await model.reply(request(purpose="compact"), silent)).text == "Summary of 2 messages."
    assert (await own.reply(request(purpose="compact"), silent)).text == "2 in short"
    assert (await model.reply(request(), silent)).text == "one"


async def test_the_text_of_a_reply_is_emitted_and_calls_alone_emit_nothing() -> None:
    heard: list[str] = []
    model = ScriptedModel(["aloud", [call("a")]])

    await model.reply(request(1), heard.append)
    await model.reply(request(2), heard.append)

    assert heard == ["aloud"]


async def test_the_last_thousand_requests_are_kept() -> None:
    model = ScriptedModel(["x"], repeat=True)

    for turn in range(1, 1_003):
        await model.reply(request(turn), silent)

    assert [asked.turn for asked in model.requests] == list(range(3, 1_003))


def test_attempts_without_an_entry_are_refused() -> None:
    with pytest.raises(InvalidValue, match="entries must be at least one entry"):
        Attempts()


def test_arguments_of_a_call_keep_letters_of_every_script() -> None:
    assert call("find", word="Ernte für 大").arguments == '{"word": "Ernte für 大"}'


def test_the_offline_model_is_found_by_its_name() -> None:
    found = find_model("offline")

    assert isinstance(found, OfflineModel)
    assert isinstance(found, Model)
    assert found.name == "offline"


def test_an_unknown_model_is_refused_with_the_known_names() -> None:
    with pytest.raises(ModelNotFound) as raised:
        find_model("oracle")

    assert raised.value.known == ("external", "offline")
    assert "'oracle': not known (known: 'external', 'offline')" in str(raised.value)


@pytest.mark.parametrize(
    "error",
    [ModelNotFound("a", ("b",)), ModelUnavailable("m", "busy", 3.0), ModelRejected("m", "no")],
)
def test_an_error_of_a_model_survives_pickling(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)

"""A history of 200 turns (show 3): each request stays small, what is pinned is still there, and the trace names it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from runtime_world import Store

from geartrain import Note, tool
from geartrain.cli._timeline import line_of
from geartrain.limits import UNLIMITED
from geartrain.machine import Budget, ContextRules, estimate_tokens
from geartrain.models import ModelRequest, ScriptedModel, call
from geartrain.runtime import Agent, ContextProvider

TURNS = 200
FREE = Budget(max_turns=UNLIMITED, max_tokens=UNLIMITED, max_seconds=UNLIMITED)
LIMIT = 64 * 1024
SHORT = ContextRules(
    bytes=LIMIT, summarise=True, summarise_turns=40, summary_pause_turns=5, shrink=True, shrink_turns=6
)
WHOLE = ContextRules(messages=10_000, bytes=64 * 1024 * 1024)


@tool(read_only=True)
async def look(page: int) -> str:
    """Look at a page."""
    return f"page {page}\n" + "what it says, at some length\n" * 100


async def memory(_view: Any) -> list[Any]:
    """Tell two things, one to be kept."""
    return [Note("The key is 42.", pinned=True), "It is Tuesday."]


def sizes(model: ScriptedModel) -> list[int]:
    return [
        sum(message.size() for message in request.messages) for request in model.requests if request.purpose == "reply"
    ]


async def lived(store: Store, window: ContextRules, provider: ContextProvider = memory) -> tuple[str, ScriptedModel]:
    turns = [[call("look", page=turn)] for turn in range(1, TURNS)]
    model = ScriptedModel([*turns, "done"], summary=_summary)
    agent = Agent("reader", model=model, tools=[look], context=[provider], budget=FREE, window=window)
    async with store.runtime(agent) as runtime:
        run = await runtime.start(agent, "read all pages")
        await run.send("Answer in French.", pinned=True)
        ended = await run.wait_ended()
        assert (ended.state, ended.turn_count) == ("FINISHED", TURNS)
        return run.id, model


def _summary(request: ModelRequest) -> str:
    pages = [line for message in request.messages for line in message.text.split("\n") if line.startswith("page ")]
    return f"{len(request.messages)} messages, with {', '.join(pages) or 'pages that were read'}."


async def test_200_turns_stay_under_the_limit_with_far_fewer_tokens_and_all_that_is_pinned(store: Store) -> None:
    run_id, model = await lived(store, SHORT)
    _, whole = await lived(Store(), WHOLE)

    assert max(sizes(model)) <= LIMIT < max(sizes(whole))
    short, long = (sum(map(estimate_tokens, sizes(each))) for each in (model, whole))
    assert short < 0.6 * long
    for request in model.requests:
        if request.purpose == "reply" and request.turn > 1:
            texts = [message.text for message in request.messages]
            assert {"The key is 42.", "Answer in French."} <= set(texts)

    async with store.runtime() as runtime:
        records = [record async for record in runtime.timeline(run_id, full=True)]
        assert (await runtime.replay(run_id)).difference is None
    named = [record for record in records if record.event == "context_compacted"]
    assert {record.payload["how"] for record in named} == {"shrink", "summary"}
    saw = [record.payload["saw"] for record in records if record.event == "llm_call_started"]
    assert [[message["text"] for message in each] for each in saw] == [
        [message.text for message in request.messages] for request in model.requests if request.purpose == "reply"
    ]
    assert [line_of(record)[:9] for record in named] == ["context: "] * len(named)
    told = {calls for record in named for calls in record.payload.get("calls", ())}
    assert {m["call_id"] for each in saw for m in each if m["shortened"] == "shrunk"} <= told


async def test_most_requests_begin_with_the_whole_request_before(memory: Store) -> None:
    _, model = await lived(memory, SHORT)

    requests = [request.messages for request in model.requests if request.purpose == "reply"]
    grown = [after[: len(before)] == before for before, after in pairwise(requests)]

    assert sum(grown) > 0.75 * len(grown)

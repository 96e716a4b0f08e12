"""Whatever is said, called and brought, in whatever order and of whatever size: what a model call sees is in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from machine_bench import Bench
from machine_world import CHAOS

from geartrain.limits import UNLIMITED
from geartrain.machine import (
    Budget,
    CompactionFailed,
    ContextCompacted,
    ContextPrepared,
    ContextRules,
    InputReceived,
    Message,
    ModelFailed,
    Step,
    groups,
)

many = settings(max_examples=5_000 if CHAOS else 100, deadline=None)
FREE = Budget(max_turns=UNLIMITED, max_tokens=UNLIMITED, max_seconds=UNLIMITED, max_tool_failures=UNLIMITED)
sizes = st.integers(0, 4_000)
rules = st.builds(
    ContextRules,
    messages=st.integers(4, 40),
    bytes=st.integers(4_000, 30_000),
    result_bytes=st.integers(50, 5_000),
    summarise=st.booleans(),
    summarise_turns=st.integers(1, 5),
    summary_pause_turns=st.integers(0, 3),
    window_slack=st.floats(0, 0.9),
    shrink=st.booleans(),
    shrink_turns=st.integers(1, 4),
    shrink_bytes=st.integers(1, 2_000),
)
turns = st.lists(
    st.one_of(
        st.tuples(st.just("calls"), st.lists(st.tuples(sizes, sizes), min_size=1, max_size=4)),
        st.tuples(st.just("says"), st.integers(0, 2_000), st.booleans()),
        st.tuples(st.just("asks"), st.integers(0, 300), st.booleans()),
        st.tuples(st.just("odd"), sizes),
        st.tuples(st.just("too long")),
    ),
    max_size=25,
)
summaries = st.one_of(st.none(), st.sampled_from(["", "short", "long " * 5_000]))
notes = st.lists(st.tuples(st.integers(1, 1_000), st.booleans()), max_size=3)


@dataclass
class Told:
    """What the model must go on seeing."""

    pinned: list[str] = field(default_factory=list)
    newest: str = "go"
    words: int = 0

    def say(self, size: int, *, pinned: bool) -> str:
        self.words += 1
        text = f"word {self.words} " + "x" * size
        if pinned:
            self.pinned.append(text)
        return text


@many
@given(rules=rules, turns=turns, summaries=st.lists(summaries, max_size=6), notes=notes)
def test_a_request_fits_and_has_its_pairs_its_prompt_what_is_pinned_and_the_newest_input(
    rules: ContextRules, turns: list[Any], summaries: list[Any], notes: list[Any]
) -> None:
    bench, told = Bench(context=rules, budget=FREE, providers=("memory",)).starts(), Told()
    given = [Message(role="user", text=told.say(n // 2, pinned=p), pinned=p, note=True) for n, p in notes]
    bench.does(ContextPrepared, messages=tuple(given))
    left = list(summaries)
    for turn in turns:
        _take(bench, told, turn)
        while bench.run.state == "COMPACT_OR_SAVE":
            summary = left.pop() if left else None
            _summarised(bench, summary)
        if bench.run.ending is not None or bench.run.error is not None:
            # Nothing else may be the matter: what is never dropped has outgrown the context.
            assert bench.code in ("context_too_long", "unsupported_action")
            return
        _check(bench, rules, told)


def _take(bench: Bench, told: Told, turn: Any) -> None:
    match turn:
        case ("calls", calls):
            asked = ['look:{"a":"' + "y" * arguments + '"}' for arguments, _ in calls]
            number = bench.replies("let me see", *asked).verdicts(*["allow"] * len(calls)).run.turn_count
            for position, (_, size) in enumerate(calls, start=1):
                bench.finishes(f"t{number}.c{position}", "z" * size)
        case ("says", size, pinned):
            text = told.say(size, pinned=pinned)
            if isinstance(bench.offer(InputReceived, text=text, pinned=pinned), Step):
                told.newest = text
                _take(bench, told, ("calls", [(0, 0)]))
            elif pinned:
                told.pinned.remove(text)
        case ("asks", size, pinned):
            text = told.say(min(size, bench.spec.context.result_bytes // 2), pinned=False)
            bench.replies("", "ask").does(InputReceived, text=text, pinned=pinned)
            if pinned and len(text) <= bench.spec.context.result_bytes:
                told.pinned.append(text)
        case ("odd", size):
            if bench.run.anomalies < 2:
                bench.replies("o" * size, anomaly="odd")
        case ("too long",):
            attempt = bench.run.model_attempt
            bench.does(
                ModelFailed,
                turn=bench.run.turn_count + 1,
                attempt=attempt,
                code="context_too_long",
                message="too long",
            )


def _summarised(bench: Bench, summary: str | None) -> None:
    if summary is None:
        bench.does(CompactionFailed, message="no")
    else:
        bench.does(ContextCompacted, summary=summary, replaced=bench.run.compacting)


def _check(bench: Bench, rules: ContextRules, told: Told) -> None:
    run = bench.run
    assert run.state == "MODEL_THINKING"
    messages = run.messages
    assert [message.role for message in messages].index("system") == 0
    assert all([m.call_id for m in unit[1:]] == [call.id for call in unit[0].calls] for unit in groups(messages))
    assert run.messages_size == sum(message.size() for message in messages) <= rules.bytes
    texts = [message.text for message in messages]
    assert [text for text in told.pinned if text not in texts] == []
    assert told.newest in texts
    units = groups(messages)
    unread = next((unit for unit in reversed(units) if unit[0].role == "assistant"), [])
    newest = len(units[-1]) + len(unread)
    assert len(messages) <= max(rules.messages, 2 + newest + sum(len(u) for u in units if _pinned(u)))


def _pinned(unit: list[Message]) -> bool:
    return any(message.pinned for message in unit)

"""What the model sees: the window and summaries, for messages of any size."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_bench import Bench
from machine_world import CHAOS

from geartrain.machine import (
    AgentSpec,
    Artifact,
    Budget,
    ContextRules,
    InputReceived,
    Message,
    Run,
    ToolCall,
    estimate_tokens,
    groups,
    spec_digest,
)
from geartrain.machine._context import fits, halve_window, keep_window, replace_by_summary, summarisable
from geartrain.machine._draft import Draft
from geartrain.machine._shorten import SHORTENED, brief, shortened

many = settings(max_examples=20_000 if CHAOS else 150, deadline=None)
texts = st.integers(0, 3_000).map("x".__mul__)
rules = st.builds(ContextRules, messages=st.integers(2, 30), bytes=st.integers(100, 8_000), summarise=st.just(True))


@st.composite
def histories(draw: st.DrawFn) -> tuple[Message, ...]:
    """Return a context as the machine makes them: pairs whole, one system prompt."""
    messages = [Message(role="system", text=draw(st.integers(0, 200).map("s".__mul__)))]
    for turn in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["input", "note", "pinned", "calls", "answer"]))
        if kind == "calls":
            ids = [f"t{turn}.c{n}" for n in range(draw(st.integers(1, 4)))]
            calls = tuple(ToolCall(id=i, tool="look", arguments=draw(texts)) for i in ids)
            messages.append(Message(role="assistant", text=draw(texts), calls=calls))
            messages += [Message(role="tool", text=draw(texts), call_id=i) for i in ids]
        elif kind == "answer":
            messages.append(Message(role="assistant", text=draw(texts)))
        else:
            text = draw(st.integers(0, 300).map("u".__mul__))
            messages.append(Message(role="user", text=text, note=kind == "note", pinned=kind == "pinned"))
    return tuple(messages)


def draft_of(messages: tuple[Message, ...], context: ContextRules | None = None) -> Draft:
    spec = AgentSpec(name="a", context=context or ContextRules())
    size = sum(message.size() for message in messages)
    return Draft(Run(id="r-1", spec=spec_digest(spec), messages=messages, messages_size=size), spec, 1.0, [])


def _kept_always(messages: tuple[Message, ...]) -> list[Message]:
    newest = [m for m in messages if m.role == "user" and not m.note][-1:]
    return [m for m in messages if m.role == "system" or m.pinned or any(m is n for n in newest)]


def _paired(messages: tuple[Message, ...]) -> bool:
    return all([m.call_id for m in unit[1:]] == [call.id for call in unit[0].calls] for unit in groups(messages))


@many
@given(messages=histories(), rules=rules)
def test_a_window_parts_no_pair_and_drops_neither_prompt_nor_pinned_nor_newest_input(
    messages: tuple[Message, ...], rules: ContextRules
) -> None:
    draft = draft_of(messages)

    keep_window(draft, rules)

    kept = draft.run.messages
    assert _paired(kept)
    assert _kept_always(messages) == _kept_always(kept)
    assert len(kept) + draft.run.messages_dropped == len(messages)
    assert draft.run.messages_size == sum(message.size() for message in kept)


@many
@given(messages=histories(), rules=rules)
def test_a_window_is_within_its_bounds_save_for_what_must_stay(
    messages: tuple[Message, ...], rules: ContextRules
) -> None:
    draft = draft_of(messages)

    keep_window(draft, rules)

    kept = draft.run.messages
    units = groups(kept)
    unread = next((unit for unit in reversed(units) if unit[0].role == "assistant"), [])
    whole = [*units[-1], *unread]
    must = _kept_always(kept)
    assert len(kept) <= max(rules.messages, len(whole) + len(must))
    bare = sum(40 * len(message.calls) + 16 for message in whole)
    assert draft.run.messages_size <= max(rules.bytes, sum(message.size() for message in must) + bare)


@many
@given(messages=histories(), count=st.integers(-3, 40), summary=texts)
def test_a_summary_parts_no_pair_and_never_makes_the_context_longer(
    messages: tuple[Message, ...], count: int, summary: str
) -> None:
    draft = draft_of(messages)

    used = replace_by_summary(draft, count, summary)

    after = draft.run.messages
    assert _paired(after)
    assert _kept_always(messages) == _kept_always(after)
    assert used is (draft.run.messages_size < sum(message.size() for message in messages))
    if not used:
        assert after is messages


@many
@given(messages=histories(), rules=rules)
def test_what_is_to_be_summarised_parts_no_pair_and_is_worth_it(
    messages: tuple[Message, ...], rules: ContextRules
) -> None:
    draft = draft_of(messages, msgspec.structs.replace(rules, summarise_turns=1))

    count = summarisable(draft)

    assert count < len(messages)
    assert count == 0 or messages[count + 1].role != "tool"


@many
@given(messages=histories())
def test_halving_a_window_makes_it_smaller_or_says_that_it_cannot(messages: tuple[Message, ...]) -> None:
    draft = draft_of(messages)

    if halve_window(draft):
        assert draft.run.messages_size <= sum(message.size() for message in messages)
    else:
        assert draft.run.messages == messages


@given(text=st.text(max_size=200), room=st.integers(0, 250))
def test_a_shortened_text_has_room_and_says_so(text: str, room: int) -> None:
    cut = shortened(text, room)

    assert len(cut) <= room or cut == text
    assert (cut == text) is (len(text) <= room)
    assert cut == text or room <= len(SHORTENED) or cut.endswith(SHORTENED)


def test_a_reason_is_brief() -> None:
    assert brief("why") == "why"
    assert len(brief("x" * 5_000)) == 1_000


@pytest.mark.parametrize(("size", "tokens"), [(0, 1), (1, 1), (4, 1), (5, 2), (400, 100)])
def test_four_characters_are_about_a_token(size: int, tokens: int) -> None:
    assert estimate_tokens(size) == tokens


def test_long_results_are_cut_to_one_length_and_short_ones_left_alone() -> None:
    bench = Bench(context=ContextRules(bytes=2_000)).starts().replies("", "look", "look", "look")
    bench.verdicts("allow", "allow", "allow").finishes("t1.c1", "a" * 5_000).finishes("t1.c2", "b").finishes(
        "t1.c3", "c" * 5_000
    )

    lengths = [len(message.text) for message in bench.run.messages if message.role == "tool"]
    assert lengths[0] == lengths[2] > 500
    assert lengths[1] == 1
    assert bench.run.messages_size <= 2_000


def test_arguments_of_calls_long_made_are_taken_out_when_nothing_else_is_left_to_cut() -> None:
    bench = Bench(context=ContextRules(bytes=2_000)).starts().replies("", 'look:{"a":"' + "x" * 5_000 + '"}')
    bench.verdicts("allow").finishes("t1.c1")

    assert bench.run.messages[-2].calls[0].arguments == "{}"


def test_a_context_that_cannot_be_made_to_fit_ends_the_run_and_says_what_takes_the_room() -> None:
    bench = Bench(instructions="x" * 3_000, context=ContextRules(bytes=2_000)).starts()

    assert bench.code == "context_too_long"
    assert "of the context's 2000 bytes" in bench.run.error.message  # type: ignore[union-attr]


def test_an_input_fits_beside_what_is_never_dropped() -> None:
    bench = Bench(context=ContextRules(bytes=500)).starts()
    draft = Draft(bench.run, bench.spec, 1.0, [])

    assert fits(draft, "x" * 400)
    assert not fits(draft, "x" * 480)


def test_results_that_the_model_has_not_read_stay_though_something_was_said_after_them() -> None:
    asked = ToolCall(id="t2.c1", tool="look", arguments="{}")
    results = (
        Message(role="assistant", text="", calls=(asked,), turn=2),
        Message(role="tool", text="found", call_id="t2.c1", turn=2),
    )
    old = [Message(role="user", text="old") for _ in range(5)]
    draft = draft_of((Message(role="system", text="s"), *old, *results, *old[:2]), ContextRules(messages=4))

    keep_window(draft, draft.spec.context)

    assert [message.text for message in draft.run.messages] == ["s", "", "found", "old"]


def test_the_newest_input_stays_though_notes_of_our_own_come_after_it() -> None:
    bench = Bench(context=ContextRules(messages=4)).starts().does(InputReceived, text="the point")
    for turn in range(1, 3):
        bench.replies("", "look").verdicts("allow").finishes(f"t{turn}.c1")
    bench.replies("hm", anomaly="broken")

    assert "the point" in [message.text for message in bench.run.messages]


def test_a_run_that_was_told_one_thing_is_summarised_too() -> None:
    rules = ContextRules(summarise=True, summarise_turns=2)
    bench = Bench(context=rules).starts()
    for turn in range(1, 4):
        bench.replies("", "look").verdicts("allow").finishes(f"t{turn}.c1", "y" * 300)

    assert bench.run.state == "COMPACT_OR_SAVE"
    assert bench.run.compacting == 3


def test_a_context_that_takes_much_of_the_tokens_left_is_summarised_early() -> None:
    rules = ContextRules(summarise=True, summarise_turns=20, summarise_share=0.1)
    bench = Bench(context=rules, budget=Budget(max_tokens=5_000)).starts()
    for turn in range(1, 4):
        bench.replies("", "look").verdicts("allow").finishes(f"t{turn}.c1", "y" * 3_000)

    assert bench.run.state == "COMPACT_OR_SAVE"


def test_large_outputs_are_remembered_as_artifacts_up_to_a_bound() -> None:
    bench = Bench(budget=Budget(max_turns=200)).starts()
    for turn in range(1, 71):
        artifact = Artifact(digest=f"d{turn}", size=10**6)
        bench.replies("", "look").verdicts("allow").finishes(f"t{turn}.c1", artifact=artifact)

    assert len(bench.run.context_artifacts) == 64
    assert bench.run.context_artifacts[-1].digest == bench.run.messages[-1].artifact == "d70"

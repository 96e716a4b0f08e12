"""Old results shrink, pinned words stay, and summaries that are no use are not asked for again at once."""

from __future__ import annotations

from typing import Any

import pytest
from machine_bench import TOOLS, Bench

from geartrain.errors import InvalidValue
from geartrain.limits import UNLIMITED
from geartrain.machine import (
    SHORTENED,
    Artifact,
    Budget,
    CompactionFailed,
    ContextCompacted,
    ContextPrepared,
    ContextRules,
    InputReceived,
    Message,
    ResultStatus,
    TimerFired,
    ToolSpec,
    shortening_of,
)
from geartrain.machine._context import assemble
from geartrain.machine._draft import Draft

ALWAYS = Budget(
    max_turns=UNLIMITED,
    max_tokens=UNLIMITED,
    max_seconds=UNLIMITED,
    max_tool_failures=UNLIMITED,
)


def shrinking(*, tools: tuple[ToolSpec, ...] = TOOLS, **rules: Any) -> Bench:
    rules = {"shrink": True, "shrink_turns": 2, "shrink_bytes": 300, **rules}
    return Bench(context=ContextRules(**rules), budget=ALWAYS, tools=tools).starts()


def looks(bench: Bench, text: str = "x" * 500, **more: Any) -> Bench:
    turn = bench.run.turn_count + 1
    return bench.replies("", "look").verdicts("allow").finishes(f"t{turn}.c1", text, **more)


def shown(bench: Bench) -> list[str]:
    """What the context shows of results: whole or shrunk."""
    return ["shrunk" if m.shrunk else "whole" for m in bench.run.messages if m.role == "tool"]


def test_results_shrink_in_batches_and_those_of_the_newest_turns_stay_whole() -> None:
    bench = shrinking()
    seen = [shown(looks(bench)) for _ in range(6)]

    assert seen[2] == ["whole"] * 3
    assert seen[3] == ["shrunk"] * 2 + ["whole"] * 2
    assert seen[4] == ["shrunk"] * 2 + ["whole"] * 3
    assert seen[5] == ["shrunk"] * 4 + ["whole"] * 2


def test_between_two_batches_a_request_begins_like_the_one_before() -> None:
    bench, changes = shrinking(shrink_turns=4), 0
    for _ in range(40):
        before = bench.run.messages
        looks(bench)
        changes += bench.run.messages[: len(before)] != before

    assert changes == 9


def test_a_shrunk_result_names_its_call_its_tool_and_its_size() -> None:
    bench = shrinking()
    looks(bench, artifact=Artifact(digest="d1", size=123_456))
    looks(bench, status=ResultStatus.ERROR)
    for _ in range(2):
        looks(bench)

    lines = [message.text for message in bench.run.messages if message.shrunk]
    assert lines == [
        "[ok: 123,456 bytes of look, call t1.c1, not shown any more]",
        "[error: 508 bytes of look, call t2.c1, not shown any more]",
    ]
    assert bench.run.messages[2].artifact == ""
    assert bench.run.messages[3].artifact == "d1"


def test_the_line_says_how_to_read_the_rest_if_the_agent_can() -> None:
    bench = shrinking(tools=(*TOOLS, ToolSpec(name="read_artifact", read_only=True)))
    for _ in range(4):
        looks(bench)

    assert bench.run.messages[3].text.endswith('not shown any more; read_artifact with call="t1.c1" shows it]')


def test_small_results_and_refusals_stay_as_they_are() -> None:
    bench = Bench(
        context=ContextRules(shrink=True, shrink_turns=1, shrink_bytes=300), budget=ALWAYS, on_denied="tell"
    ).starts()
    bench.replies("", "write").verdicts("deny", reason="no " * 200)
    looks(bench, "x" * 300)
    for _ in range(3):
        looks(bench)

    assert shown(bench) == ["whole", "whole", "shrunk", "shrunk", "whole"]


def test_a_line_that_is_no_shorter_than_the_result_is_not_put_in_its_place() -> None:
    bench = shrinking(shrink_bytes=1, shrink_turns=1)
    for _ in range(4):
        looks(bench, "four")

    assert shown(bench) == ["whole"] * 4
    assert bench.run.shortened == ()


def test_results_shrink_earlier_once_they_fill_the_context_up() -> None:
    bench = shrinking(shrink_turns=4, bytes=8_000)
    for _ in range(5):
        looks(bench, "x" * 900)
    assert shown(bench) == ["whole"] * 5

    looks(bench, "x" * 900)
    assert shown(bench) == ["shrunk"] * 2 + ["whole"] * 4


def test_a_full_window_with_slack_drops_a_share_of_itself_at_once() -> None:
    counts: dict[float, list[int]] = {0.0: [], 0.5: []}
    for slack, seen in counts.items():
        bench = shrinking(shrink=False, messages=20, window_slack=slack)
        for _ in range(14):
            looks(bench, "short")
            seen.append(len(bench.run.messages))

    assert counts[0.0] == [4, 6, 8, 10, 12, 14, 16, 18, 20, 20, 20, 20, 20, 20]
    assert counts[0.5] == [4, 6, 8, 10, 12, 14, 16, 18, 20, 10, 12, 14, 16, 18]


def test_nothing_shrinks_unless_the_rules_say_so() -> None:
    bench = shrinking(shrink=False)
    for _ in range(20):
        looks(bench, "x" * 5_000)

    assert shown(bench) == ["whole"] * 20


def test_an_answer_that_was_to_be_kept_does_not_shrink_and_is_not_dropped() -> None:
    bench = shrinking(messages=12).replies("", "ask").does(InputReceived, text="blue " * 100, pinned=True)
    for _ in range(12):
        looks(bench)

    kept = [message for message in bench.run.messages if message.call_id == "t1.c1"]
    assert [message.text for message in kept] == ["blue " * 100]
    assert bench.run.messages_dropped > 0
    asking = bench.run.messages[bench.run.messages.index(kept[0]) - 1]
    assert [call.id for call in asking.calls] == ["t1.c1"]


def test_each_shortening_is_noted_with_the_step_that_did_it() -> None:
    bench = shrinking(bytes=3_000, messages=12)
    found: set[str] = set()
    for _ in range(10):
        before = bench.run
        looks(bench, "x" * 900)
        found |= {shortening.how for shortening in bench.run.shortened}
        dropped = sum(s.messages for s in bench.run.shortened if s.how == "window")
        assert dropped == bench.run.messages_dropped - before.messages_dropped
    looks(bench, "x" * 9_000)

    assert found == {"shrink", "window"}
    assert [(s.how, s.messages) for s in bench.run.shortened][-1] == ("cut", 1)
    assert bench.replies("", "look").run.shortened == ()


def test_pinned_words_stay_however_long_the_run_is() -> None:
    bench = shrinking(messages=10).does(InputReceived, text="the key is 42", pinned=True)
    bench.does(InputReceived, text="and be quick")
    for _ in range(30):
        looks(bench)
    bench.does(InputReceived, text="well?")
    for _ in range(10):
        looks(bench)

    said = [(message.text, message.pinned) for message in bench.run.messages if message.role == "user"]
    assert said == [("the key is 42", True), ("well?", False)]


def test_pinned_words_that_leave_no_room_are_refused() -> None:
    bench = Bench(context=ContextRules(bytes=1_000), budget=ALWAYS).starts()
    bench.does(InputReceived, text="x" * 400, pinned=True)

    assert "does not fit" in bench.refuses(InputReceived, text="x" * 600, pinned=True)
    looks(bench.does(InputReceived, text="x" * 100))
    assert "does not fit" in bench.refuses(InputReceived, text="x" * 600)
    assert bench.run.state == "MODEL_THINKING"


def test_what_a_provider_told_gives_way_to_what_it_tells_now() -> None:
    bench = Bench(providers=("memory", "clock")).starts()
    old = Message(role="user", text="old", note=True, pinned=True, provider="memory")
    other = Message(role="user", text="other", note=True, provider="clock")
    new = Message(role="user", text="new", note=True, provider="memory")
    bench.does(ContextPrepared, messages=(old, other))

    draft = Draft(bench.run, bench.spec, 1.0, [])
    assemble(draft, (new,), ())

    assert [message.text for message in draft.run.messages] == ["Be good.", "other", "new", "go"]


def summarising(**rules: Any) -> Bench:
    rules = {"summarise": True, "summarise_turns": 2, "summary_pause_turns": 3, **rules}
    bench = Bench(context=ContextRules(**rules), budget=ALWAYS).starts()
    for _ in range(3):
        looks(bench)
    assert bench.run.state == "COMPACT_OR_SAVE"
    return bench


@pytest.mark.parametrize(
    "outcome",
    [
        lambda bench: bench.does(ContextCompacted, summary=" \n", replaced=99),
        lambda bench: bench.does(ContextCompacted, summary="long " * 1_000, replaced=99),
        lambda bench: bench.does(ContextCompacted, summary="nothing", replaced=0),
        lambda bench: bench.does(CompactionFailed, message="no"),
        lambda bench: bench.does(TimerFired, kind="dwell", time=bench.now + 10_000),
    ],
)
def test_after_a_summary_that_was_no_use_some_turns_pass_before_the_next(outcome: Any) -> None:
    bench = summarising()
    before = bench.run.messages

    outcome(bench)

    assert bench.run.messages == before
    states = []
    for _ in range(3):
        looks(bench)
        states.append(str(bench.run.state))
    assert states == ["MODEL_THINKING", "MODEL_THINKING", "COMPACT_OR_SAVE"]


def test_a_summary_that_is_used_is_noted_and_the_pinned_pair_stays_in_front_of_it() -> None:
    rules = ContextRules(summarise=True, summarise_turns=3)
    bench = Bench(context=rules, budget=ALWAYS).starts().replies("", "ask")
    bench.does(InputReceived, text="blue", pinned=True)
    for _ in range(4):
        looks(bench)

    bench.does(ContextCompacted, summary="looked", replaced=99)

    assert [(s.how, s.messages) for s in bench.run.shortened] == [("summary", 2)]
    texts = [message.text for message in bench.run.messages]
    assert texts[:5] == ["Be good.", "go", "", "blue", "[Summary of the conversation so far]\nlooked"]


@pytest.mark.parametrize(
    ("message", "how"),
    [
        (Message(role="tool", text="[ok]", shrunk=True, artifact="d1"), "shrunk"),
        (Message(role="tool", text="the beginning", artifact="d1"), "trimmed"),
        (Message(role="assistant", text="the beginning" + SHORTENED), "cut"),
        (Message(role="user", text="all of it"), ""),
    ],
)
def test_a_message_says_how_it_was_shortened(message: Message, how: str) -> None:
    assert shortening_of(message) == how


@pytest.mark.parametrize(
    ("name", "value"), [("shrink_turns", 0), ("shrink_bytes", 0), ("summary_pause_turns", -1), ("window_slack", 1)]
)
def test_rules_that_cannot_be_are_refused(name: str, value: int) -> None:
    with pytest.raises(InvalidValue, match=name):
        ContextRules(**{name: value})


def test_pinned_words_that_are_judged_first_stay_pinned() -> None:
    bench = Bench(guarded=("input",), context=ContextRules(bytes=2_000), budget=ALWAYS).starts().verdicts("allow")
    bench.does(InputReceived, text="by the way").does(InputReceived, text="the key is 42", pinned=True)
    looks(bench)

    assert [call.pinned for call in bench.run.calls] == [False, True]
    assert "does not fit" in bench.refuses(InputReceived, text="x" * 1_950)

    bench.verdicts("allow", "allow")
    assert [(m.text, m.pinned) for m in bench.run.messages[-2:]] == [("by the way", False), ("the key is 42", True)]


def test_a_pinned_answer_that_is_judged_first_stays_pinned() -> None:
    bench = Bench(guarded=("input",), budget=ALWAYS).starts().verdicts("allow").replies("", "ask")
    bench.does(InputReceived, text="blue", pinned=True).verdicts("allow")

    assert [(m.text, m.pinned) for m in bench.run.messages if m.pinned][-1] == ("blue", True)

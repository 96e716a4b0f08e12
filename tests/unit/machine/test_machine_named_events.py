"""Named events in the step: what the root keeps and answers, and what hearing does to a call."""

from __future__ import annotations

from typing import Any

import pytest
from machine_bench import Bench

from geartrain.machine import (
    WAIT_SECONDS,
    CancelRequested,
    EventAwaited,
    EventHeard,
    EventPublished,
    PauseRequested,
    ToolSpec,
    _named_events,
    answers,
    awaited_by,
    published_by,
    rests,
    wake_at,
)

TOOLS = (
    ToolSpec(name="look", read_only=True),
    ToolSpec(name="publish", kind="publish", read_only=True, external=True, timeout_seconds=60.0),
    ToolSpec(name="wait_for", kind="wait_for", read_only=True, external=True, timeout_seconds=600.0),
)


def a_root() -> Bench:
    return Bench(tools=TOOLS).starts()


def publishes(bench: Bench, name: str, payload: str = "", run_id: str = "r-2") -> list[tuple[str, Any]]:
    return told(bench, EventPublished, run_id=run_id, call_id="t1.c1", name=name, payload=payload)


def awaits(
    bench: Bench, name: str, run_id: str = "r-3", after: int = 0, until: float | None = None
) -> list[tuple[str, Any]]:
    return told(bench, EventAwaited, run_id=run_id, call_id="t1.c1", name=name, after=after, until=until)


def told(bench: Bench, kind: type[Any], **fields: Any) -> list[tuple[str, Any]]:
    before = bench.run
    bench.does(kind, **fields)
    event = kind(id="e", time=bench.now, **fields)
    return [(run_id, heard) for run_id, heard in answers(before, event, bench.run)]


def short(answered: list[tuple[str, Any]]) -> list[tuple[str, int, str]]:
    return [(run_id, heard.number, heard.payload or heard.refused) for run_id, heard in answered]


def test_the_root_tells_who_published_and_all_who_wait() -> None:
    root = a_root()
    assert awaits(root, "a", "r-3") == awaits(root, "b", "r-4") == awaits(root, "a", "r-5") == []

    answered = publishes(root, "a", "x")

    assert short(answered) == [("r-2", 0, ""), ("r-3", 1, "x"), ("r-5", 1, "x")]
    assert [wait.run_id for wait in root.run.awaited] == ["r-4"]
    assert root.run.state == "MODEL_THINKING"


def test_what_was_published_is_heard_later_too_and_each_event_once() -> None:
    root = a_root()
    publishes(root, "a", "1")
    publishes(root, "b", "2")
    publishes(root, "a", "3")

    assert short(awaits(root, "a")) == [("r-3", 1, "1")]
    assert short(awaits(root, "a", after=1)) == [("r-3", 3, "3")]
    assert root.run.awaited == ()
    assert short(awaits(root, "a", after=3)) == []


def test_the_root_refuses_what_it_has_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_named_events, "EVENTS_MAX", 1)
    monkeypatch.setattr(_named_events, "WAITS_MAX", 1)
    root = a_root()
    publishes(root, "a", "1")
    assert short(publishes(root, "b"))[0][2].startswith("1 events of")
    assert short(awaits(root, "c")) == []
    assert short(awaits(root, "d", "r-4")) == [("r-4", 0, "1 waits are open, the most that are kept")]
    monkeypatch.setattr(_named_events, "EVENTS_MAX", 10)
    monkeypatch.setattr(_named_events, "EVENTS_BYTES_MAX", 4)
    assert short(publishes(root, "b", "much"))[0][2].startswith("10 events of 4 bytes")


def test_a_wait_whose_time_is_over_makes_room_and_hears_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_named_events, "WAITS_MAX", 2)
    root = a_root()
    began = root.now
    awaits(root, "a", "r-3", until=began + 10)
    awaits(root, "a", "r-4", until=began + 20)
    root.now = began + 9
    assert short(awaits(root, "a", "r-5"))[0][2].startswith("2 waits are open")
    assert awaits(root, "a", "r-5") == []
    assert [wait.run_id for wait in root.run.awaited] == ["r-4", "r-5"]
    root.now = began + 20

    assert short(publishes(root, "a", "x")) == [("r-2", 0, ""), ("r-5", 1, "x")]


def test_a_run_takes_events_also_while_it_is_held_but_not_while_it_ends() -> None:
    root = a_root().does(PauseRequested)
    publishes(root, "a")
    root = a_root().replies("", "look").verdicts("allow").does(CancelRequested)
    assert "ending" in root.refuses(EventPublished, run_id="r-2", call_id="t1.c1", name="a")


def waiting(arguments: str = '{"name":"a","timeout_seconds":50}') -> Bench:
    return Bench(tools=TOOLS).starts().replies("", f"wait_for:{arguments}").verdicts("allow")


def test_a_call_that_waits_rests_and_ends_by_its_own_time() -> None:
    bench = waiting()
    assert (bench.status, bench.call("t1.c1").event) == (["running"], "wait_for")
    assert rests(bench.run, bench.spec)
    assert wake_at(bench.run, bench.spec) == bench.now + 50


@pytest.mark.parametrize("seconds", ["9000", "-1", '"x"'])
def test_no_wait_is_longer_than_its_tool_allows(seconds: str) -> None:
    assert waiting(f'{{"name":"a","timeout_seconds":{seconds}}}').call("t1.c1").timeout_seconds == 600


def test_a_wait_that_does_not_say_how_long_lasts_as_long_as_its_tool_says() -> None:
    assert waiting('{"name":"a"}').call("t1.c1").timeout_seconds == WAIT_SECONDS == 300


def test_of_two_calls_that_wait_for_one_name_each_hears_another_event() -> None:
    wait = 'wait_for:{"name":"a"}'
    bench = Bench(tools=TOOLS).starts().replies("", wait, wait).verdicts("allow", "allow")

    bench.does(EventHeard, call_id="t1.c1", name="a", number=1, payload="x")
    bench.does(EventHeard, call_id="t1.c2", name="a", number=1, payload="x")

    assert bench.status == ["done", "running"]
    assert awaited_by(bench.run, bench.call("t1.c2")).after == 1
    bench.does(EventHeard, call_id="t1.c2", name="a", number=2, payload="y")
    assert [message.text for message in bench.run.messages[-2:]] == ["x", "y"]


def test_what_is_heard_is_the_result_and_the_next_wait_asks_for_what_comes_after() -> None:
    bench = waiting()
    asked = awaited_by(bench.run, bench.call("t1.c1"))
    assert (asked.after, asked.until) == (0, bench.call("t1.c1").since + 50)

    bench.does(EventHeard, call_id="t1.c1", name="a", number=7, payload="x")

    assert bench.run.messages[-1].text == "x"
    bench.replies("", 'wait_for:{"name":"a"}').verdicts("allow")
    brought = awaited_by(bench.run, bench.call("t2.c1"))
    assert (brought.id, brought.after) == ("r-1/t2.c1.awaited.7", 7)


def test_a_call_that_publishes_is_told_that_it_has() -> None:
    bench = Bench(tools=TOOLS).starts().replies("", 'publish:{"name":"a","payload":"x"}').verdicts("allow")
    brought = published_by(bench.run, bench.call("t1.c1"))
    assert (brought.id, brought.name, brought.payload) == ("r-1/t1.c1.published", "a", "x")

    bench.does(EventHeard, call_id="t1.c1", name="a")

    assert bench.run.messages[-1].text == "published 'a'"
    assert bench.run.heard == {}


def test_a_refusal_is_the_result() -> None:
    bench = waiting().does(EventHeard, call_id="t1.c1", name="a", refused="full")
    assert bench.results == [("t1.c1", "refused")]


def test_only_a_call_that_waits_for_an_event_hears_one() -> None:
    bench = Bench(tools=TOOLS).starts().replies("", "look").verdicts("allow")
    assert bench.refuses(EventHeard, call_id="t1.c1", name="a") == "call 't1.c1' waits for no event"

"""A policy of ordered rules: the first that fits decides, and its name is kept."""

from __future__ import annotations

from typing import Any

import pytest
from runtime_world import Ledger, Store, an_agent, calling, journal_of

from geartrain.errors import InvalidValue
from geartrain.machine import PermissionsEvaluated
from geartrain.runtime import (
    Allow,
    Ask,
    Deny,
    PolicyCall,
    Rule,
    Rules,
    RunView,
    argument_below,
    argument_equals,
    argument_matches,
)
from geartrain.runtime._reading._runs import read_run

VIEW = RunView(
    run_id="r-1",
    agent="worker",
    turn_count=1,
    tool_calls=0,
    principal="ops",
    permissions=("write",),
    labels={},
    context={},
)


def call(tool: str = "write_file", read_only: bool = False, **arguments: Any) -> PolicyCall:
    return PolicyCall(id="t1.c1", tool=tool, arguments=arguments, read_only=read_only, idempotent=False)


def said(rules: Rules, about: PolicyCall) -> Any:
    return rules(about, VIEW)


def test_the_first_rule_that_fits_decides_and_names_itself() -> None:
    rules = Rules(
        [
            Rule("delete_*", Deny("nothing is deleted"), name="no deletes"),
            Rule("write_*", Allow(), when=argument_below("path", "drafts"), name="drafts"),
            Rule(["write_*", "move_?"], Ask("outside")),
            Rule("*", Allow()),
        ],
        default=Deny(),
    )

    assert said(rules, call("delete_file")) == Deny("nothing is deleted", rule="no deletes")
    assert said(rules, call(path="drafts/a.md")) == Allow(rule="drafts")
    assert said(rules, call(path="final/a.md")) == Ask("outside", rule="rule 3")
    assert said(rules, call("move_a")) == Ask("outside", rule="rule 3")
    assert said(rules, call("anything")) == Allow(rule="rule 4")


def test_letters_of_a_tool_name_count_as_they_are_written() -> None:
    rules = Rules([Rule("Write", Allow())], default=Deny("no"))

    assert said(rules, call("write")) == Deny("no", rule="default")


def test_where_no_rule_fits_the_default_decides_which_asks_about_what_changes_something() -> None:
    rules = Rules([])

    assert isinstance(said(rules, call(read_only=True)), Allow)
    assert said(rules, call()) == Ask("'write_file' changes something", rule="default")


def test_a_default_may_be_a_policy_that_names_a_rule_of_its_own() -> None:
    rules = Rules([], default=lambda call, run: Deny(run.principal, rule="mine"))

    assert said(rules, call()) == Deny("ops", rule="mine")


def test_a_condition_sees_the_call_and_the_run() -> None:
    rules = Rules([Rule("*", Allow(), when=lambda call, run: "write" in run.permissions)], default=Deny())

    assert isinstance(said(rules, call()), Allow)


def test_a_rule_whose_condition_gives_no_plain_truth_raises_and_so_asks() -> None:
    async def later() -> bool:
        return False

    def odd(_call: Any, _run: Any) -> Any:
        return later()

    rules = Rules([Rule("*", Deny(), when=odd, name="odd"), Rule("*", Allow())])

    with pytest.raises(InvalidValue, match="odd"):
        said(rules, call())


@pytest.mark.parametrize(
    ("condition", "arguments", "holds"),
    [
        (argument_equals("mode", "fast"), {"mode": "fast"}, True),
        (argument_equals("mode", "fast"), {"mode": "slow"}, False),
        (argument_equals("mode", None), {}, False),
        (argument_matches("to", r".+@example\.org"), {"to": "ops@example.org"}, True),
        (argument_matches("to", r".+@example\.org"), {"to": "ops@example.org.evil"}, False),
        (argument_matches("to", r".+@example\.org"), {"to": 5}, False),
        (argument_below("path", "drafts"), {"path": "drafts"}, True),
        (argument_below("path", "drafts/"), {"path": "./drafts//a/../b.md"}, True),
        (argument_below("path", "drafts"), {"path": "drafts-old/a"}, False),
        (argument_below("path", "drafts"), {"path": "drafts/../secret"}, False),
        (argument_below("path", "drafts"), {"path": "../drafts/a"}, False),
        (argument_below("path", "drafts"), {"path": "/drafts/a"}, False),
        (argument_below("path", "/data"), {"path": "/data/a"}, True),
        (argument_below("path", "/data"), {"path": "//data/a"}, True),
        (argument_below("path", "/data"), {"path": "data/a"}, False),
        (argument_below("path", "/data"), {"path": "/data/../etc"}, False),
        (argument_below("path", "."), {"path": "a/b"}, True),
        (argument_below("path", "."), {"path": "/a"}, False),
        (argument_below("path", "."), {"path": ".."}, False),
        (argument_below("path", "drafts"), {"path": "drafts/\0"}, False),
        (argument_below("path", "drafts"), {"path": ""}, False),
        (argument_below("path", "drafts"), {"path": None}, False),
        (argument_below("path", "drafts"), {}, False),
    ],
)
def test_ready_made_conditions(condition: Any, arguments: dict[str, Any], holds: bool) -> None:
    assert condition(call(**arguments), VIEW) is holds


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Rule("", Allow()),
        lambda: Rule([], Allow()),
        lambda: Rule([""], Allow()),
        lambda: Rule(5, Allow()),  # type: ignore[arg-type]
        lambda: Rule("*", Allow),  # type: ignore[arg-type]
        lambda: Rule("*", True),  # type: ignore[arg-type]
        lambda: Rule("*", Allow(), when="yes"),  # type: ignore[arg-type]
        lambda: Rule("*", Allow(), name="two\nlines"),
        lambda: Rules([Allow()]),  # type: ignore[list-item]
        lambda: Rules([], default=None),  # type: ignore[arg-type]
        lambda: Rules([Rule("a", Allow(), name="one"), Rule("b", Allow(), name="one")]),
        lambda: argument_matches("a", "("),
        lambda: argument_below("a", ""),
        lambda: argument_below("a", "../b"),
    ],
)
def test_what_is_no_rule_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidValue):
        wrong()


def test_a_condition_that_cannot_answer_at_once_is_refused() -> None:
    async def later(_call: Any, _run: Any) -> bool:
        return True

    with pytest.raises(InvalidValue, match="plain function"):
        Rule("*", Allow(), when=later)  # type: ignore[arg-type]


async def test_the_rule_is_kept_with_the_decision(store: Store, ledger: Ledger) -> None:
    rules = Rules([Rule("write", Allow(), when=argument_equals("text", "a"), name="only a")], default=Ask())
    agent = an_agent([[calling("write", '{"text": "a"}'), calling("write")], "done"], ledger.write())
    async with store.runtime(agent, policy=rules) as runtime:
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()
        assert rest.holds == ("approval(t1.c2)",)
        events = [entry.event for entry in await journal_of(run, runtime)]
        (evaluated,) = [event for event in events if isinstance(event, PermissionsEvaluated)]
        assert [verdict.rule for verdict in evaluated.verdicts] == ["only a", "default"]
        revived = await read_run(runtime._host.node.journal, run.id)
        assert [decision.by for decision in revived.run.permission_decisions] == ["policy:only a", "policy:default"]
        records = [r async for r in runtime.timeline(run.id) if r.event == "permission_evaluated"]
        assert [record.payload["rule"] for record in records] == ["only a", "default"]


async def test_a_condition_that_raises_asks_and_allows_nothing_further_down(store: Store, ledger: Ledger) -> None:
    def broken(_call: Any, _run: Any) -> bool:
        raise KeyError("x")

    rules = Rules([Rule("write", Deny(), when=broken), Rule("*", Allow())])
    agent = an_agent([[calling("write")], "done"], ledger.write())
    async with store.runtime(agent, policy=rules) as runtime:
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()
        assert rest.holds == ("approval(t1.c1)",)
        assert "KeyError" in rest.waiting[0].reason
        assert not ledger.done

"""What a description of a tree may say, and what each wrong one is told."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest

from geartrain.actors import Actor, Overflow
from geartrain.limits import UNLIMITED
from geartrain.supervisor import (
    Backoff,
    ChildSpec,
    Restart,
    RestartLimit,
    Shutdown,
    SpecRefused,
    Strategy,
    Supervisor,
    WrongSpec,
)


class Plain(Actor):
    def receive(self, message: Any) -> Any:
        return message


class Named(Plain):
    def __init__(self, name: str) -> None:
        self.name = name


async def make_later() -> Actor:
    return Plain()


def nested(depth: int) -> Supervisor:
    tree = Supervisor()
    for _ in range(depth - 1):
        tree = Supervisor([ChildSpec("below", tree)])
    return tree


WRONG = [
    ({"name": ""}, WrongSpec.NAME),
    ({"name": "a/b"}, WrongSpec.NAME),
    ({"name": "a\n"}, WrongSpec.NAME),
    ({"name": "a" * 101}, WrongSpec.NAME),
    ({"name": 7}, WrongSpec.NAME),
    ({"start": Plain()}, WrongSpec.START_INSTANCE),
    ({"start": make_later}, WrongSpec.START_ASYNC),
    ({"start": Named}, WrongSpec.START_PARAMETERS),
    ({"start": lambda name: Plain()}, WrongSpec.START_PARAMETERS),
    ({"start": dict}, WrongSpec.START),
    ({"start": "Plain"}, WrongSpec.START),
    ({"start": None}, WrongSpec.START),
    ({"restart": "always"}, WrongSpec.RESTART),
    ({"restart": None}, WrongSpec.RESTART),
    *(({"start_seconds": wrong}, WrongSpec.START_SECONDS) for wrong in (0, -1, math.inf, None, "5", True)),
    *(({"shutdown_seconds": wrong}, WrongSpec.SHUTDOWN) for wrong in (0, -1, math.nan, math.inf, "5", True, b"")),
    *(({"capacity": wrong}, WrongSpec.CAPACITY) for wrong in (0, -1, 1.5, True, "5")),
    ({"overflow": "spill"}, WrongSpec.OVERFLOW),
    ({"start": Supervisor(), "capacity": 5}, WrongSpec.SUPERVISOR_MAILBOX),
    ({"start": Supervisor(), "overflow": "refuse"}, WrongSpec.SUPERVISOR_MAILBOX),
]
WRONG_TREES = [
    ({"children": Plain}, WrongSpec.CHILDREN),
    ({"children": [Plain]}, WrongSpec.CHILDREN),
    ({"children": ChildSpec("a", Plain)}, WrongSpec.CHILDREN),
    ({"children": [ChildSpec("a", Plain), ChildSpec("a", Plain)]}, WrongSpec.NAME_TAKEN),
    ({"strategy": "all_for_one"}, WrongSpec.STRATEGY),
    ({"limit": 3}, WrongSpec.LIMIT),
    ({"backoff": 1.0}, WrongSpec.BACKOFF),
    ({"children": [ChildSpec("below", nested(16))]}, WrongSpec.DEPTH),
]


@pytest.mark.parametrize(("wrong", "why"), WRONG)
def test_a_wrong_child_is_refused_with_its_own_reason(wrong: dict[str, Any], why: WrongSpec) -> None:
    with pytest.raises(SpecRefused) as refused:
        ChildSpec(**{"name": "child", "start": Plain, **wrong})

    assert refused.value.why is why
    assert why.value in str(refused.value)


@pytest.mark.parametrize(("wrong", "why"), WRONG_TREES)
def test_a_wrong_supervisor_is_refused_with_its_own_reason(wrong: dict[str, Any], why: WrongSpec) -> None:
    with pytest.raises(SpecRefused) as refused:
        Supervisor(**wrong)

    assert refused.value.why is why
    assert str(refused.value).startswith("child" if refused.value.name is not None else f"supervisor: {why.value}")


def test_each_reason_is_given_to_some_wrong_spec() -> None:
    assert {why for _, why in (*WRONG, *WRONG_TREES)} == set(WrongSpec)


@pytest.mark.parametrize("start", [Plain, functools.partial(Named, "x"), lambda name="x": Named(name), Supervisor()])
def test_whatever_makes_a_new_actor_without_arguments_can_be_a_child(start: Any) -> None:
    assert ChildSpec("child", start).start is start


def test_words_become_members() -> None:
    child = ChildSpec("a", Plain, restart="transient", shutdown_seconds="brutal", overflow="refuse")
    tree = Supervisor([child], strategy="rest_for_one")

    assert (child.restart, child.shutdown_seconds, child.overflow) == (
        Restart.TRANSIENT,
        Shutdown.BRUTAL,
        Overflow.REFUSE,
    )
    assert (tree.children, tree.strategy) == ((child,), Strategy.REST_FOR_ONE)
    assert ChildSpec("a", Plain, shutdown_seconds=UNLIMITED).shutdown_seconds is UNLIMITED
    assert ChildSpec("a", Plain, shutdown_seconds=3).shutdown_seconds == 3.0


def test_what_is_not_said_has_a_default() -> None:
    child, tree = ChildSpec("a", Plain), Supervisor()

    assert (child.restart, child.shutdown_seconds, child.overflow) == (Restart.PERMANENT, None, Overflow.WAIT)
    assert (tree.strategy, tree.limit, tree.backoff) == (Strategy.ONE_FOR_ONE, RestartLimit(3, 60.0), Backoff())


def test_a_tree_may_be_sixteen_supervisors_deep() -> None:
    assert nested(16).depth == 16

"""The stored form: versions, unknown data, round trips, and a snapshot that no change slips past."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_bench import Bench, event_of
from machine_world import CHAOS, walk

from geartrain.errors import FormatUnknown, InvalidValue
from geartrain.machine import (
    EVENT_VERSIONS,
    RUN_VERSION,
    AgentSpec,
    Budget,
    BudgetRaised,
    Command,
    Event,
    InputReceived,
    PauseRequested,
    Run,
    Step,
    ToolFinished,
    ToolSpec,
    _wire,
    decode_event,
    decode_run,
    decode_spec,
    encode_event,
    encode_run,
    encode_spec,
    event_digest,
    event_from_json,
    join_path,
    spec_digest,
    split_path,
)

KINDS = get_args(Event)
SNAPSHOT = Path(__file__).parent / "stored-forms.json"
many = settings(max_examples=20_000 if CHAOS else 40, deadline=None)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False)
wholes = st.integers(-(2**63), 2**63 - 1)
values = st.recursive(
    st.none() | st.booleans() | wholes | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=4,
)


def _register() -> None:
    st.register_type_strategy(str, texts)
    st.register_type_strategy(float, numbers)
    st.register_type_strategy(int, wholes)
    st.register_type_strategy(Budget, st.builds(Budget, max_turns=st.integers(1, 99), max_seconds=st.floats(1, 1e6)))
    st.register_type_strategy(ToolSpec, st.builds(ToolSpec, parameters=st.dictionaries(texts, values)))


def built(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Return values of a stored struct with all its fields drawn."""
    _register()
    fields = {f.name: _drawn(f.type) for f in msgspec.structs.fields(kind)}
    return st.builds(kind, **fields)


def _drawn(hint: Any) -> st.SearchStrategy[Any]:
    if hint is Any:
        return values
    if hint in (dict[str, Any], dict[str, str]):
        return st.dictionaries(texts, values if hint == dict[str, Any] else texts, max_size=2)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and hint is not Budget:
        return built(hint)
    arguments = get_args(hint)
    if getattr(hint, "__origin__", None) is tuple:
        return st.lists(_drawn(arguments[0]), max_size=2).map(tuple)
    if arguments and type(None) in arguments:
        return st.none() | _drawn(next(each for each in arguments if each is not type(None)))
    return st.from_type(hint)


# -- round trips


@pytest.mark.parametrize("kind", KINDS)
def test_an_event_read_back_is_the_event_that_was_stored(kind: type[Any]) -> None:
    @many
    @given(event=built(kind))
    def check(event: Any) -> None:
        assert decode_event(kind.__name__, EVENT_VERSIONS[kind.__name__], encode_event(event)) == event
        assert event_from_json(encode_event(event)) == event

    check()


@pytest.mark.parametrize("kind", get_args(Command))
def test_a_command_read_back_is_the_command_that_was_sent(kind: type[Any]) -> None:
    @many
    @given(command=built(kind))
    def check(command: Any) -> None:
        assert msgspec.json.decode(msgspec.json.encode(command), type=Command) == command

    check()


@many
@given(run=built(Run))
def test_a_run_read_back_is_the_run_that_was_stored(run: Run) -> None:
    assert decode_run(RUN_VERSION, encode_run(run)) == run


@given(seed=st.integers(0, 500))
def test_a_spec_read_back_is_the_spec_that_was_stored_and_has_its_digest(seed: int) -> None:
    for world, _ in walk(seed, events=0):
        stored = decode_spec(encode_spec(world.spec))

        assert stored == world.spec
        assert spec_digest(stored) == spec_digest(world.spec)
        break


def test_a_path_read_back_is_the_path_that_was_stored() -> None:
    path = Bench().starts().path

    assert split_path(join_path(path)) == path  # type: ignore[arg-type]
    assert split_path("") == ()


# -- what is newer or unknown


def test_an_unknown_type_and_a_newer_version_are_refused_with_both_versions_named() -> None:
    """JR-5."""
    with pytest.raises(FormatUnknown, match=r"Teleported.*version 3.*34 types, the newest of version 1"):
        decode_event("Teleported", 3, b"{}")
    with pytest.raises(FormatUnknown, match="found version 2, this version reads up to version 1"):
        decode_event("InputReceived", 2, b"{}")
    with pytest.raises(FormatUnknown, match="found version 9, this version reads up to version 1"):
        decode_run(9, b"{}")


@pytest.mark.parametrize("version", [0, -1])
def test_a_version_that_never_was_is_refused(version: int) -> None:
    with pytest.raises(FormatUnknown):
        decode_event("InputReceived", version, b"{}")
    with pytest.raises(FormatUnknown):
        decode_run(version, b"{}")


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"null", b"[]", b'"x"', b"\xff", b"[" * 100_000,
        b'{"type":"InputReceived"}',
        b'{"type":"InputReceived","id":"e","time":"now","text":"t"}',
        b'{"type":"Teleported","id":"e","time":1.0}',
        b'{"type":"InputReceived","id":"e","time":1.0,"text":"\\ud800"}',
    ],
)  # fmt: skip
def test_a_body_that_does_not_fit_is_refused(body: bytes) -> None:
    with pytest.raises(FormatUnknown):
        decode_event("InputReceived", 1, body)
    with pytest.raises(FormatUnknown):
        event_from_json(body)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"{}", b'{"id":3}', b'{"id":"r","state":"ASLEEP"}'])
def test_a_checkpoint_that_does_not_fit_is_refused(body: bytes) -> None:
    with pytest.raises(FormatUnknown, match="checkpoint"):
        decode_run(RUN_VERSION, body)


def test_a_value_that_this_code_refuses_is_refused_where_it_is_read() -> None:
    body = b'{"type":"BudgetRaised","id":"e","time":1.0,"budget":{"max_turns":0}}'

    with pytest.raises(FormatUnknown, match="max_turns"):
        decode_event("BudgetRaised", 1, body)
    with pytest.raises(InvalidValue, match="max_turns"):
        event_from_json(body)


def test_a_body_of_another_type_is_refused() -> None:
    with pytest.raises(FormatUnknown, match="a body of PauseRequested"):
        decode_event("InputReceived", 1, encode_event(PauseRequested(id="e", time=1.0)))


def test_an_extra_field_and_a_missing_optional_one_load() -> None:
    """JR-5."""
    event = decode_event("InputReceived", 1, b'{"type":"InputReceived","id":"e","time":1,"text":"t","mood":"good"}')

    assert event == InputReceived(id="e", time=1.0, text="t")
    assert decode_run(RUN_VERSION, b'{"id":"r-1","colour":"blue"}') == Run(id="r-1")


def test_a_renamed_tool_loads_and_is_an_observation() -> None:
    """JR-5: the recorded spec knows the tool, so its journal still folds; today's code answers that it is gone."""
    bench = Bench().starts().replies("", "look").verdicts("invalid", reason="there is no tool 'look' any more")

    assert bench.results == [("t1.c1", "error")]
    assert decode_run(RUN_VERSION, encode_run(bench.run)) == bench.run


# -- older versions


def test_an_older_body_goes_through_its_upcasters_one_version_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_wire, "EVENT_VERSIONS", MappingProxyType({**EVENT_VERSIONS, "InputReceived": 3}))

    def from_1(body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "message": body["said"]}

    def from_2(body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "text": body["message"]}

    upcasters = {("InputReceived", 1): from_1, ("InputReceived", 2): from_2}
    first = b'{"type":"InputReceived","id":"e","time":1.0,"said":"hello"}'
    second = b'{"type":"InputReceived","id":"e","time":1.0,"message":"hello"}'

    assert decode_event("InputReceived", 1, first, upcasters) == InputReceived(id="e", time=1.0, text="hello")
    assert decode_event("InputReceived", 2, second, upcasters) == InputReceived(id="e", time=1.0, text="hello")
    with pytest.raises(FormatUnknown, match="does not fit version 1"):
        decode_event("InputReceived", 1, first, {})
    with pytest.raises(FormatUnknown, match="does not fit version 1"):
        decode_event("InputReceived", 1, b"[]", upcasters)


def test_an_older_checkpoint_goes_through_its_upcasters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_wire, "RUN_VERSION", 2)

    run = decode_run(1, b'{"name":"r-1"}', {1: lambda body: {**body, "id": body["name"]}})

    assert run == Run(id="r-1")


# -- digests


def test_a_digest_leaves_out_the_time_and_nothing_else() -> None:
    event = ToolFinished(id="e", time=1.0, call_id="t1.c1", attempt=1, status="ok", text="x")  # type: ignore[arg-type]

    assert event_digest(event) == event_digest(msgspec.structs.replace(event, time=2.0))
    assert event_digest(event) != event_digest(msgspec.structs.replace(event, text="y"))


def test_specs_that_differ_have_different_digests() -> None:
    assert spec_digest(AgentSpec(name="a")) != spec_digest(AgentSpec(name="a", on_denied="tell"))


# -- the snapshot


def stored_forms() -> dict[str, Any]:
    """Return the fields of everything that is stored, by type and version."""
    forms = {f"{kind.__name__} {EVENT_VERSIONS[kind.__name__]}": _fields(kind) for kind in KINDS}
    forms[f"Run {RUN_VERSION}"] = _fields(Run)
    within = (kind for module in ("_values", "_spec", "_run") for kind in _structs(module))
    return forms | {kind.__name__: _fields(kind) for kind in within if kind is not Run}


def _structs(module: str) -> list[type[Any]]:
    found = vars(importlib.import_module(f"geartrain.machine.{module}")).values()
    structs = [each for each in found if isinstance(each, type) and issubclass(each, msgspec.Struct)]
    # What a module only imports, a runtime's own limits among it, is not stored.
    return [each for each in structs if each.__module__.startswith("geartrain.machine")]


def _fields(kind: type[Any]) -> list[str]:
    return [f"{f.name}{'' if f.required else '?'}: {_hint(f.type)}" for f in msgspec.structs.fields(kind)]


def _hint(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("geartrain.", "")


def test_a_change_of_a_stored_form_raises_its_version() -> None:
    """An optional new field may be added to the snapshot; anything else needs a new version and an upcaster."""
    recorded = json.loads(SNAPSHOT.read_text(encoding="utf-8"))
    now = stored_forms()

    for name, fields in recorded.items():
        assert name in now, f"{name} is no longer read: older journals hold it"
        assert set(fields) <= set(now[name]), f"{name} has changed: raise its version and add an upcaster"
        added = set(now[name]) - set(fields)
        assert all("?: " in field for field in added), f"{name} needs a new version for {added}"
    assert now == recorded, "new stored forms: run python tests/unit/machine/stored_forms.py and look at the difference"


def test_every_event_has_a_version_and_a_minimal_form_that_loads() -> None:
    assert set(EVENT_VERSIONS) == {kind.__name__ for kind in KINDS}
    for kind in KINDS:
        event = event_of(kind)
        assert decode_event(kind.__name__, 1, encode_event(event)) == event


def test_a_run_takes_a_budget_that_came_as_json() -> None:
    event = event_from_json(b'{"type":"BudgetRaised","id":"e","time":2000,"budget":{"max_turns":"unlimited"}}')
    bench = Bench().starts()

    assert isinstance(event, BudgetRaised)
    assert isinstance(bench.offer(BudgetRaised, budget=event.budget), Step)

"""What a model sees of a result."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import enum
import json
import socket
import threading
from collections import OrderedDict, UserDict, deque
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geartrain.ids import digest
from geartrain.machine import ResultStatus
from geartrain.tools import Outcome
from geartrain.tools._clean import cleaned, cut, error_text, present
from geartrain.tools._json import LIGHT_NODES, is_light, pieces


def shown(value: Any, context_bytes: int = 16_384, stored_bytes: int = 1 << 20) -> Outcome:
    return present(value, context_bytes=context_bytes, stored_bytes=stored_bytes)


class Point(msgspec.Struct):
    x: int
    y: float = 0.0


@dataclasses.dataclass
class Locked:
    name: str
    lock: Any = dataclasses.field(default_factory=threading.Lock)


@dataclasses.dataclass
class Pair:
    a: int
    b: Any


class Colour(enum.Enum):
    RED = "red"


class Shout(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("no")


VALUES: list[tuple[Any, str]] = [
    ("plain é 漢 😀", "plain é 漢 😀"),
    ("", "(no output)"),
    (None, "(no output)"),
    (b"", "(no output)"),
    ("a\r\nb\rc\td", "a\nb\nc\td"),
    ("nul \0 esc \x1b[31m del \x7f c1 \x85", r"nul \x00 esc \x1b[31m del \x7f c1 \x85"),
    ("lone \udc80 \ud83d", r"lone \udc80 \ud83d"),
    (Shout("loud"), "loud"),
    (b"bytes \xc3\xa9\r\n", "bytes é\n"),
    (bytearray(b"array"), "array"),
    (memoryview(b"abcdef")[::2], "ace"),
    (True, "true"),
    (-3, "-3"),
    (2**70, str(2**70)),
    (1.5, "1.5"),
    (float("nan"), '"NaN"'),
    ([float("inf"), -float("inf"), None], '["Infinity","-Infinity",null]'),
    ({"a": [1, {"b": (2, 3)}], 4: "c"}, '{"a":[1,{"b":[2,3]}],"4":"c"}'),
    ({7}, "[7]"),
    (Point(1, float("nan")), '{"x":1,"y":"NaN"}'),
    (Pair(1, [Point(2)]), '{"a":1,"b":[{"x":2,"y":0.0}]}'),
    (Colour.RED, '"red"'),
    (dt.date(2026, 1, 2), '"2026-01-02"'),
    (PurePosixPath("/a"), '"/a"'),
    (deque([1, 2]), "[1,2]"),
    (UserDict(a=1), '{"a":1}'),
    (OrderedDict(a=1), '{"a":1}'),
    (["\0\x7f\x85"], r'["\u0000\u007f\u0085"]'),
    (["\ud800"], r'["\\ud800"]'),
    ({"\ud800": 1}, r'{"\\ud800":1}'),
]


@pytest.mark.parametrize(("value", "text"), VALUES)
def test_a_value_is_shown_as_clean_text_or_json(value: Any, text: str) -> None:
    outcome = shown(value)

    assert outcome.text == text
    assert outcome.status is ResultStatus.OK
    assert outcome.full is None
    assert outcome.size == (0 if text == "(no output)" else len(text.encode()))


class ReprRaises:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class EverythingRaises(type):
    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError("no " + name)


class Hostile(metaclass=EverythingRaises):
    pass


class MappingThatRaises(Mapping[str, int]):
    def __init__(self, kind: type[BaseException] = ValueError) -> None:
        self.kind = kind

    def __getitem__(self, key: str) -> int:
        raise self.kind

    def __iter__(self) -> Iterator[str]:
        raise self.kind

    def __len__(self) -> int:
        return 1


def nested(depth: int) -> Any:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def cyclic_list() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def cyclic_dict() -> Any:
    value: dict[str, Any] = {"x": "y" * 1_000}
    value["me"] = [value] * 10
    return value


async def unawaited() -> None: ...


UNSTORABLE: list[tuple[str, Any]] = [
    ("generator", lambda: (x for x in [1])),
    ("coroutine", unawaited),
    ("lambda", lambda: lambda: 1),
    ("cyclic list", cyclic_list),
    ("cyclic dict", cyclic_dict),
    ("dataclass with a lock", lambda: Locked("x")),
    ("object whose repr raises", ReprRaises),
    ("object of a hostile class", lambda: object.__new__(Hostile)),
    ("complex", lambda: 1j),
    ("dict with tuples as keys", lambda: {(1, 2): 3}),
    ("number of 5,000 digits", lambda: 10**5_000),
    ("exception", lambda: ValueError("x")),
    ("lock deep inside", lambda: [1, {"a": [threading.Lock()]}]),
    ("mapping that raises", MappingThatRaises),
    ("mapping that exits", lambda: MappingThatRaises(KeyboardInterrupt)),
    ("deeply nested list", lambda: nested(4_000)),
    ("lock behind a lot", lambda: [*range(20_000), threading.Lock()]),
]


@pytest.mark.parametrize("make", [make for _, make in UNSTORABLE], ids=[name for name, _ in UNSTORABLE])
def test_a_result_that_cannot_be_stored_is_done_all_the_same(make: Any) -> None:
    """IN-5: the effect has happened, so nothing may look like a failure."""
    outcome = shown(make())

    assert outcome.status is ResultStatus.OK
    assert outcome.text.startswith("done; the result cannot be stored")
    assert len(outcome.text) < 400


def test_a_socket_is_done_and_not_storable() -> None:
    """IN-5."""
    with socket.socket() as value:
        assert shown(value).text == ("done; the result cannot be stored (socket): it holds a value of type 'socket'")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "image/png"),
        (b"%PDF-1.7 looks like text", "application/pdf"),
        (b"\xff\xfe\xfd", "application/octet-stream"),
    ],
)
def test_binary_data_is_named_and_kept_whole(data: bytes, kind: str) -> None:
    outcome = shown(data)

    assert outcome.text == f"(binary data: {kind}, {len(data)} bytes; it is artifact {digest(data)})"
    assert outcome.full == data
    assert outcome.media_type == kind


def test_binary_data_larger_than_what_is_stored_is_not_kept_in_part() -> None:
    outcome = shown(b"\xff" * 101, stored_bytes=100)

    assert outcome.text == "(binary data: application/octet-stream, 101 bytes; too large to be stored)"
    assert outcome.full is None


def test_trimmed_text_keeps_whole_lines_of_head_and_tail_and_says_what_is_missing() -> None:
    """IN-6."""
    text = "".join(f"line {number}\n" for number in range(1_000))

    outcome = shown(text, context_bytes=400)

    head, _, rest = outcome.text.partition("\n[…")
    note, _, tail = rest.partition("]\n")
    assert text.startswith(head + "\n")
    assert text.endswith("\n" + tail)
    left = len(text) - len(head) - len(tail)
    assert note == f" {left:,} of {len(text):,} bytes left out; the whole output is artifact {digest(text.encode())}"
    assert outcome.full == text.encode()
    assert outcome.size == len(text)


def test_text_that_just_fits_is_not_trimmed() -> None:
    assert shown("é" * 50, context_bytes=100).text == "é" * 50
    assert shown("é" * 50, context_bytes=99).full == ("é" * 50).encode()


def test_only_the_first_part_of_a_very_large_output_is_stored_and_the_note_says_so() -> None:
    """IN-6."""
    text = "é" * 5_000

    outcome = shown(text, context_bytes=300, stored_bytes=1_001)

    assert outcome.full == ("é" * 500).encode()
    assert f"of 10,000 bytes left out; the first 1,000 bytes are artifact {digest(outcome.full)}]" in outcome.text
    assert outcome.text.endswith("é")


def test_text_that_fits_the_context_is_shown_whole_even_if_less_may_be_stored() -> None:
    assert shown("x" * 200, context_bytes=300, stored_bytes=10).text == "x" * 200


def test_heavy_json_is_the_same_text_as_light_json() -> None:
    value = {
        "numbers": list(range(LIGHT_NODES)),
        "points": [Point(n) for n in range(3)] * 3_000,
        "pairs": [Pair(1, {"k": [None] * 4})] * 3_000,
        "text": 'quote " and é' * 200_000,
        "bytes": b"\0\1\2\3" * 500_000,
        "set": set(range(10_000)),
        **{str(n): n for n in range(2_000)},
    }

    heavy = "".join(pieces(value))

    assert not is_light(value)
    assert heavy == msgspec.json.encode(value).decode()


@pytest.mark.parametrize(
    "wrap", [Point, lambda heavy: Pair(1, heavy), lambda heavy: [memoryview(b"x" * 2_000_000), heavy]]
)
def test_what_is_heavy_inside_is_the_same_text(wrap: Any) -> None:
    value = wrap(["x" * 100] * LIGHT_NODES)

    assert "".join(pieces(value)) == msgspec.json.encode(value).decode()


def test_text_and_bytes_are_light_up_to_a_megabyte() -> None:
    for value in ("x", b"x", bytearray(b"x"), memoryview(b"x")):
        assert is_light(value)
    for value in ("x" * 2_000_000, b"x" * 2_000_000, memoryview(b"x" * 2_000_000)):
        assert not is_light(value)


def test_json_that_never_ends_is_cut_off() -> None:
    """IN-6: twenty doublings of 4,000 numbers."""
    value: list[Any] = [1.5] * 4_000
    for _ in range(20):
        value = [value, value]

    outcome = shown(value)

    assert "of more than" in outcome.text
    assert len(outcome.text.encode()) <= 16_384
    assert outcome.full is not None
    assert len(outcome.full) == 1 << 20


def test_crlf_on_the_border_of_two_slices_is_one_newline() -> None:
    text = "x" * (128 * 1024 - 1) + "\r\n" + "y" * 10

    assert shown(text, 1 << 20).text == text.replace("\r\n", "\n")
    assert shown(text.encode(), 1 << 20).text == text.replace("\r\n", "\n")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner),
)


@given(anything | st.text() | st.binary(), st.integers(1, 400), st.integers(1, 400))
def test_whatever_is_returned_gives_valid_text_within_the_limits(value: Any, context: int, stored: int) -> None:
    """IN-5, IN-6, ST-9."""
    outcome = shown(value, context, stored)

    assert outcome.status is ResultStatus.OK
    assert 0 < len(outcome.text.encode("utf-8")) <= context or context < 4
    assert len(outcome.full or b"") <= stored
    assert cleaned(outcome.text) == outcome.text
    if outcome.full is not None and outcome.media_type in {"text/plain", "application/json"}:
        assert cleaned(outcome.full.decode()) == outcome.full.decode()


@settings(max_examples=50)
@given(anything.filter(lambda value: not isinstance(value, str | bytes | None)))
def test_json_that_is_shown_whole_is_json(value: Any) -> None:
    outcome = shown(value, 1 << 24, 1 << 24)

    assert outcome.text.startswith("done; ") or json.loads(outcome.text) is not None


@given(st.text())
def test_cleaning_twice_changes_nothing_more(text: str) -> None:
    """ST-9: no NUL and no lone surrogate is left."""
    once = cleaned(text)

    assert cleaned(once) == once
    assert "\0" not in once
    once.encode()


@given(st.text(st.characters(codec="utf-8")), st.integers(0, 50))
def test_cut_text_is_the_longest_start_that_fits(text: str, size: int) -> None:
    result = cut(text, size)

    assert text.startswith(result)
    assert len(result.encode()) <= size
    assert result == text or len(text[: len(result) + 1].encode()) > size


class StrRaises(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


ERRORS: list[tuple[BaseException, str]] = [
    (ValueError("bad \0 value"), r"ValueError: bad \x00 value"),
    (KeyError("k"), "KeyError: 'k'"),
    (RuntimeError(), "RuntimeError"),
    (SystemExit(3), "SystemExit: 3"),
    (StrRaises(), "StrRaises: (its message cannot be shown: __str__ raised KeyboardInterrupt)"),
    (asyncio.CancelledError(), "CancelledError"),
    (
        ExceptionGroup("g", [ValueError("a"), ExceptionGroup("h", [KeyError("b"), OSError("c")])]),
        "ExceptionGroup: ValueError: a; KeyError: 'b'; OSError: c",
    ),
]


@pytest.mark.parametrize(("error", "text"), ERRORS)
def test_an_error_is_told_by_its_type_and_message(error: BaseException, text: str) -> None:
    assert error_text(error) == text


def test_a_long_message_of_an_error_is_cut() -> None:
    assert error_text(ValueError("x" * 10_000_000)) == "ValueError: " + "x" * 1_999 + "…"

"""Every code, hold, status and kind has its row: what it means and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from geartrain.machine import (
    HOLDS,
    KIND_OF_CODE,
    KINDS,
    REASONS,
    RESULTS,
    ErrorKind,
    HoldKind,
    Meaning,
    ReasonCode,
    ResultStatus,
    what_to_do,
)

TABLES = ((REASONS, ReasonCode), (HOLDS, HoldKind), (RESULTS, ResultStatus), (KINDS, ErrorKind))


@pytest.mark.parametrize(("table", "names"), TABLES)
def test_every_name_has_its_row_in_the_order_of_the_names(table: Mapping[Any, Meaning], names: Any) -> None:
    assert list(table) == list(names)


@pytest.mark.parametrize(("table", "names"), TABLES)
def test_every_row_is_sentences(table: Mapping[Any, Meaning], names: Any) -> None:
    texts = [text for row in table.values() for text in (row.means, row.what_to_do)]

    assert [text for text in texts if not text.endswith(".") or "  " in text or len(text) > 260] == []
    assert [row.means for row in table.values() if not row.means[0].isupper()] == []


def test_no_two_codes_mean_the_same() -> None:
    assert len({reason.means for reason in REASONS.values()}) == len(REASONS)


def test_every_kind_has_a_code_and_every_code_its_kind() -> None:
    assert set(KIND_OF_CODE.values()) == set(ErrorKind)
    assert {code: reason.kind for code, reason in REASONS.items()} == dict(KIND_OF_CODE)


def test_what_to_do_is_known_of_every_code_as_it_is_stored_and_of_no_other() -> None:
    assert all(what_to_do(code.value) == reason.what_to_do for code, reason in REASONS.items())
    assert what_to_do("made_by_a_newer_version") == ""

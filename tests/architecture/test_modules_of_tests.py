"""Test modules are found by their bare names, so each has one of its own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent.parent


def test_no_two_modules_of_the_tests_have_one_name() -> None:
    names = Counter(path.name for path in TESTS.rglob("*.py") if path.name != "conftest.py")

    assert [name for name, count in names.items() if count > 1] == []

"""Two fork servers for all of these tests: one per core of the smallest machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from geartrain.testing.kill import ForkServer


@pytest.fixture(scope="session")
def servers() -> Iterator[Sequence[ForkServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(ForkServer(path=[Path(__file__).parent])) for _ in range(2)]

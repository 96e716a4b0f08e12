"""Two fork servers for all of these tests: one per core of the smallest machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import disk
import pytest

from geartrain.testing.kill import ForkServer


@pytest.fixture(scope="session")
def servers() -> Iterator[Sequence[ForkServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(ForkServer(path=[Path(__file__).parent])) for _ in range(2)]


@pytest.fixture(scope="session")
def breaking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[ForkServer]]:
    if not disk.available():
        pytest.skip("there is no gcc to build the shim with")
    library = disk.build(tmp_path_factory.mktemp("shim"))
    with ExitStack() as stack:
        yield [stack.enter_context(disk.server(library, [Path(__file__).parent])) for _ in range(2)]

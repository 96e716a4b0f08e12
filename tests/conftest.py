"""Tests run on virtual time; those marked `real_time` on the real clock."""

from __future__ import annotations

from typing import Any

import pytest

from geartrain.testing import virtual_time_backend


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    if request.node.get_closest_marker("real_time") is not None:
        return "asyncio", {}
    return virtual_time_backend()

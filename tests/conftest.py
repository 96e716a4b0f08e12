"""Tests run on virtual time; those marked `real_time` on the real clock."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any

import pytest

from geartrain.testing import virtual_time_backend


def pytest_configure(config: pytest.Config) -> None:
    """Keep commands, also those in processes of their own, from noting stores in the home of whoever runs the tests."""
    folder = os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="geartrain-tests-")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    if request.node.get_closest_marker("real_time") is not None:
        return "asyncio", {}
    return virtual_time_backend()

"""A short outage of a real disk; `make chaos` has a long one, under more runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(120)]


def test_runs_go_on_by_themselves_after_the_stores_files_could_not_be_written(tmp_path: Path) -> None:
    """Show 6: nothing is quarantined, nothing is lost, nothing is done twice; not even if the log is on that disk."""
    script = Path(__file__).with_name("outage.py")
    with (tmp_path / "log").open("w") as log:
        done = subprocess.run(
            [sys.executable, str(script), "--runs", "60", "--seconds", "2"],
            stdout=log,
            stderr=subprocess.PIPE,
            text=True,
            timeout=100,
            check=False,
        )

    assert done.returncode == 0, (tmp_path / "log").read_text() + done.stderr

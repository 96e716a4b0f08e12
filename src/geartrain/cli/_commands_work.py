"""Driving all runs of a store from the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from geartrain.cli._command import command, setting_of
from geartrain.cli._options import AppOption, JsonOption, QuietOption, StoreOption


@command
async def work(
    context: typer.Context,  # noqa: ARG001
    *,
    stay: Annotated[
        bool, typer.Option("--stay", help="Go on until it is stopped: runs that rest are woken when their time comes.")
    ] = False,
    store: StoreOption = None,
    app: AppOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Go on with every run of a store that was left in the middle, until each has ended or waits for somebody.

    Started again and again after a crash it comes to an end: a run that kills the process is set apart, all others
    finish. Ctrl-C or SIGTERM ends no run; a second one stops at once. The exit code is 3 if a run waits for somebody or
    is set apart, else 1 if one has failed meanwhile.
    """
    from geartrain.cli import _work  # noqa: PLC0415

    return await _work.work(setting_of(store=store, app=app, json=json, quiet=quiet), stay=stay)

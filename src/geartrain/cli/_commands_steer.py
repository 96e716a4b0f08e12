"""Holding a run, letting it go on, and ending it."""

from __future__ import annotations

from typing import Annotated

import typer

from geartrain.cli._command import command, setting_of
from geartrain.cli._options import AppOption, ByOption, JsonOption, QuietOption, ReasonOption, RunArgument, StoreOption


@command
async def pause(
    context: typer.Context,  # noqa: ARG001
    *,
    run: RunArgument,
    reason: ReasonOption = "",
    store: StoreOption = None,
    app: AppOption = None,
    by: ByOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Pause a run that nobody drives: nothing of it starts until it is resumed.

    While another process drives a run of the same store, that process owns the store, and this is refused with its
    pid.
    """
    from geartrain.cli import _acts  # noqa: PLC0415

    return await _acts.pause(setting_of(store=store, app=app, by=by, json=json, quiet=quiet), run, reason)


@command
async def resume(
    context: typer.Context,  # noqa: ARG001
    *,
    run: RunArgument,
    max_turns: Annotated[
        int | None,
        typer.Option("--max-turns", metavar="N", min=1, help="A new limit of model calls.", show_default=False),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", min=1, help="A new limit of tokens.", show_default=False)
    ] = None,
    max_seconds: Annotated[
        float | None,
        typer.Option("--max-seconds", metavar="S", help="A new limit of active seconds.", show_default=False),
    ] = None,
    store: StoreOption = None,
    app: AppOption = None,
    by: ByOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Go on with a run that was stopped in the middle, paused, or is out of budget (with a new one)."""
    from geartrain.cli import _acts  # noqa: PLC0415

    limits = {"max_turns": max_turns, "max_tokens": max_tokens, "max_seconds": max_seconds}
    budget = {name: value for name, value in limits.items() if value is not None}
    return await _acts.resume(setting_of(store=store, app=app, by=by, json=json, quiet=quiet), run, budget)


@command
async def cancel(
    context: typer.Context,  # noqa: ARG001
    *,
    run: RunArgument,
    reason: ReasonOption = "",
    store: StoreOption = None,
    app: AppOption = None,
    by: ByOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Cancel a run that nobody drives: nothing starts any more, and it ends.

    While another process drives a run of the same store, that process owns the store, and this is refused with its
    pid; stop that process first (Ctrl-C ends no run).
    """
    from geartrain.cli import _acts  # noqa: PLC0415

    return await _acts.cancel(setting_of(store=store, app=app, by=by, json=json, quiet=quiet), run, reason)

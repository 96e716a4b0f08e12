"""Holding a run, letting it go on, and ending it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from geartrain.cli._command import acting
from geartrain.cli._options import ReasonOption, RunArgument

if TYPE_CHECKING:
    from geartrain.cli._acts import Setting


@acting
async def pause(
    setting: Setting,
    *,
    run: RunArgument,
    reason: ReasonOption = "",
) -> int:
    """Pause a run that nobody drives: nothing of it starts until it is resumed.

    While another process drives a run of the same store, that process owns the store, and this is refused with its
    pid.
    """
    from geartrain.cli import _acts  # noqa: PLC0415

    return await _acts.pause(setting, run, reason)


@acting
async def resume(
    setting: Setting,
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
    max_tool_failures: Annotated[
        int | None,
        typer.Option(
            "--max-tool-failures", metavar="N", min=1, help="A new limit of failed calls.", show_default=False
        ),
    ] = None,
    max_tool_calls: Annotated[
        int | None,
        typer.Option("--max-tool-calls", metavar="N", min=1, help="A new limit of calls.", show_default=False),
    ] = None,
    max_cost: Annotated[
        float | None,
        typer.Option(
            "--max-cost", metavar="C", help="A new limit of cost, in the unit of its price.", show_default=False
        ),
    ] = None,
) -> int:
    """Go on with a run that was stopped in the middle, paused, or is out of budget (with a new one)."""
    from geartrain.cli import _acts  # noqa: PLC0415

    limits = {
        "max_turns": max_turns,
        "max_tokens": max_tokens,
        "max_seconds": max_seconds,
        "max_tool_failures": max_tool_failures,
        "max_tool_calls": max_tool_calls,
        "max_cost": max_cost,
    }
    budget = {name: value for name, value in limits.items() if value is not None}
    return await _acts.resume(setting, run, budget)


@acting
async def cancel(
    setting: Setting,
    *,
    run: RunArgument,
    reason: ReasonOption = "",
) -> int:
    """Cancel a run that nobody drives: nothing starts any more, and it ends.

    While another process drives a run of the same store, that process owns the store, and this is refused with its
    pid; stop that process first (Ctrl-C ends no run).
    """
    from geartrain.cli import _acts  # noqa: PLC0415

    return await _acts.cancel(setting, run, reason)

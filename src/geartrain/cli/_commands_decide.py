"""What a run waits for from a person: decisions, words on doubts, and things said to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from geartrain.cli._command import acting
from geartrain.cli._options import (
    CallArgument,
    ReasonOption,
    RunArgument,
)
from geartrain.errors import InvalidValue

if TYPE_CHECKING:
    from geartrain.cli._acts import Setting


@acting
async def approve(
    setting: Setting,
    *,
    run: RunArgument,
    call: CallArgument = None,
    arguments: Annotated[
        str | None,
        typer.Option("--arguments", metavar="JSON", help="Run it with these arguments instead.", show_default=False),
    ] = None,
    remember: Annotated[
        bool, typer.Option("--remember", help="Also the same tool with the same arguments, for the rest of the run.")
    ] = False,
    reason: ReasonOption = "",
) -> int:
    """Approve a call that waits for it, and go on with the run."""
    from geartrain.cli import _acts  # noqa: PLC0415

    return await _acts.decide(setting, run, call, approved=True, reason=reason, arguments=arguments, remember=remember)


@acting
async def deny(
    setting: Setting,
    *,
    run: RunArgument,
    call: CallArgument = None,
    reason: ReasonOption = "",
) -> int:
    """Deny a call that waits for approval: the run ends, or goes on without it, as its agent says."""
    from geartrain.cli import _acts  # noqa: PLC0415

    return await _acts.decide(setting, run, call, approved=False, reason=reason)


@acting
async def settle(
    setting: Setting,
    *,
    run: RunArgument,
    call: CallArgument = None,
    done: Annotated[bool, typer.Option("--done", help="It was done.")] = False,
    text: Annotated[
        str | None, typer.Option("--text", metavar="TEXT", help="With --done: what its result was.", show_default=False)
    ] = None,
    run_it: Annotated[bool, typer.Option("--run", help="It was not done: run it.")] = False,
    skip: Annotated[bool, typer.Option("--skip", help="It was not done: go on without it.")] = False,
) -> int:
    """Settle a doubt: say whether a write whose result was lost was done, and go on with the run."""
    from geartrain.cli import _acts  # noqa: PLC0415

    if done + run_it + skip != 1:
        raise InvalidValue("settle", "given one of --done, --run and --skip", _given(done=done, run=run_it, skip=skip))
    if text is not None and not done:
        raise InvalidValue("--text", "given with --done only", text)
    return await _acts.settle(
        setting, run, call, done=done, not_done="run" if run_it else "skip" if skip else "", text=text or ""
    )


def _given(**flags: bool) -> str:
    return " ".join(f"--{name}" for name, value in flags.items() if value) or "none"


@acting
async def send(
    setting: Setting,
    *,
    run: RunArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say.", show_default=False)],
    pinned: Annotated[bool, typer.Option("--pinned", help="It stays in the context, however long the run is.")] = False,
) -> int:
    """Say something to a run: it answers what was asked, or is heard at the next model call.

    While another process drives a run of the same store, that process owns the store, and this is refused with its
    pid.
    """
    from geartrain.cli import _acts  # noqa: PLC0415

    return await _acts.send(setting, run, text, pinned=pinned)

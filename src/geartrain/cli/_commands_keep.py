"""What a store holds together, and what it is to hold no longer."""

from __future__ import annotations

from typing import Annotated

import typer

from geartrain.cli._command import command, reading, setting_of
from geartrain.cli._options import JsonOption, QuietOption, StoreOption

_YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed where nobody can be asked.")]


@reading
async def statistics(
    context: typer.Context,  # noqa: ARG001
    *,
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """Show all runs of a store together: by state, errors by kind, turns, tokens, calls, when one was moved last."""
    from geartrain.cli import _keep  # noqa: PLC0415

    return await _keep.statistics(setting_of(store=store, json=json))


@command
async def delete(
    context: typer.Context,  # noqa: ARG001
    *,
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="The runs: their ids, or beginnings of them.", show_default=False),
    ],
    yes: _YesOption = False,
    store: StoreOption = None,
    quiet: QuietOption = False,
) -> int:
    """Delete runs that have ended, with all that is only theirs and the runs below them. On a terminal it asks first.

    It cannot be undone. If one of them has not ended, none is deleted.
    """
    from geartrain.cli import _keep  # noqa: PLC0415

    return await _keep.delete(setting_of(store=store, quiet=quiet), runs, yes=yes)


@command
async def prune(
    context: typer.Context,  # noqa: ARG001
    *,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            metavar="AGE",
            help="How long ago they must have ended: a number and one of s, m, h, d, w, like 30d.",
            show_default=False,
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many there are.")] = False,
    yes: _YesOption = False,
    store: StoreOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Delete all runs of a store that ended long ago. It cannot be undone; on a terminal it asks.

    Runs that have not ended stay, however old.
    """
    from geartrain.cli import _keep  # noqa: PLC0415

    setting = setting_of(store=store, json=json, quiet=quiet)
    return await _keep.prune(setting, older_than, dry_run=dry_run, yes=yes)

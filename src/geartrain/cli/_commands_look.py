"""Looking at runs: these commands read a store, also while another process owns it."""

from __future__ import annotations

from typing import Annotated

import typer

from geartrain.cli._command import reading, setting_of
from geartrain.cli._options import AppOption, JsonOption, RunOrFileArgument, StoreOption


def _state(given: str) -> str:
    """Return the state that *given* names, however it is written."""
    from geartrain.machine import RunState  # noqa: PLC0415

    if given.upper() not in set(RunState):
        raise typer.BadParameter(f"{given!r} is not one of {', '.join(RunState)}")
    return given.upper()


@reading
async def list_(
    context: typer.Context,  # noqa: ARG001
    *,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", parser=_state, help="Only runs in this state; may be repeated."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Only runs of this agent.", show_default=False)
    ] = None,
    waiting: Annotated[bool, typer.Option("--waiting", help="Only runs that wait for somebody.")] = False,
    stuck: Annotated[
        bool, typer.Option("--stuck", help="Only runs that do not get on: why, since when, what was done about it.")
    ] = False,
    root: Annotated[
        str | None, typer.Option("--root", metavar="RUN", help="Only the tree that this run is in.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="How many at most.")] = 20,
    everything: Annotated[bool, typer.Option("--all", help="All of them, however many.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """List runs, the newest first."""
    from geartrain.cli import _show  # noqa: PLC0415

    if stuck:
        if state or agent or waiting or root:
            raise typer.BadParameter("--stuck goes with none of --state, --agent, --waiting and --root")
        return await _show.list_stuck(setting_of(store=store, json=json), limit=None if everything else limit)
    return await _show.list_runs(
        setting_of(store=store, json=json),
        states=state or (),
        agent=agent,
        waiting=waiting,
        root=root,
        limit=None if everything else limit,
    )


@reading
async def show(
    context: typer.Context,  # noqa: ARG001
    *,
    run: RunOrFileArgument,
    full: Annotated[bool, typer.Option("--full", help="Also what each model call saw.")] = False,
    tree: Annotated[bool, typer.Option("--tree", help="In its place the run and all below it, a line each.")] = False,
    store: StoreOption = None,
    app: AppOption = None,
    json: JsonOption = False,
) -> int:
    """Show one run: how it stands, and all that happened, with times, calls, results and decisions."""
    if tree:
        from geartrain.cli import _tree  # noqa: PLC0415

        return await _tree.show_tree(setting_of(store=store, app=app, json=json), run)
    from geartrain.cli import _show  # noqa: PLC0415

    return await _show.show(setting_of(store=store, app=app, json=json), run, full=full)

"""Starting runs from the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from geartrain.cli._command import command, setting_of
from geartrain.cli._options import (
    AppOption,
    ByOption,
    ContinueOption,
    JsonOption,
    NewStoreOption,
    QuietOption,
    RootOption,
)


@command
async def run(  # noqa: PLR0913 - a command's options
    context: typer.Context,  # noqa: ARG001
    *,
    question: Annotated[
        str, typer.Argument(metavar="QUESTION", help="What the agent is to find out or do.", show_default=False)
    ],
    root: RootOption = None,
    continues: ContinueOption = None,
    write: Annotated[
        str | None,
        typer.Option(
            "--write",
            metavar="FILE",
            help="Save the report there, below the root; that needs an approval.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="NAME", help="The built-in agent's model. [default: offline]", show_default=False
        ),
    ] = None,
    max_turns: Annotated[
        int | None,
        typer.Option(
            "--max-turns",
            metavar="N",
            min=1,
            help="Most model calls. [default: the agent's own, 20]",
            show_default=False,
        ),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Which of the agents.", show_default=False)
    ] = None,
    store: NewStoreOption = None,
    app: AppOption = None,
    by: ByOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Start a run, and stay with it until it has ended or waits for somebody."""
    from geartrain.cli import _acts  # noqa: PLC0415

    setting = setting_of(store=store, app=app, by=by, json=json, quiet=quiet)
    request = _acts.Request(
        question=question, agent=agent, root=root, write=write, model=model, max_turns=max_turns, continues=continues
    )
    return await _acts.start(setting, request)

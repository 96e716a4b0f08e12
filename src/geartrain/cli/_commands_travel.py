"""Runs that leave their store, and looking at them where they arrive: all of these only read."""

from __future__ import annotations

from typing import Annotated

import typer

from geartrain.cli._command import reading, setting_of
from geartrain.cli._options import JsonOption, QuietOption, RunArgument, RunOrFileArgument, StoreOption
from geartrain.errors import InvalidValue


@reading
async def export(
    context: typer.Context,  # noqa: ARG001
    *,
    run: RunArgument,
    redact: Annotated[
        list[str] | None,
        typer.Option(
            "--redact",
            metavar="RULE",
            help="Leave out: `secrets` (fields and texts that look like them), `text:REGEX`, the NAME of a field "
            "anywhere, or TYPE.FIELD like `ToolFinished.text`; `*` stands for any letters. May be repeated.",
            show_default=False,
        ),
    ] = None,
    no_artifacts: Annotated[bool, typer.Option("--no-artifacts", help="Without large outputs.")] = False,
    store: StoreOption = None,
    quiet: QuietOption = False,
) -> int:
    """Write a run to standard output, for `show`, `replay` and `step` where there is no store: `> run.jsonl`.

    With --redact, nothing is written unless the run still goes the way it went. Look through the file before it
    leaves your hands: no rule knows every secret. The runs below a run are runs of their own.
    """
    from geartrain.cli import _export  # noqa: PLC0415

    return await _export.export(
        setting_of(store=store, quiet=quiet), run, redact=redact or (), artifacts=not no_artifacts
    )


@reading
async def replay(
    context: typer.Context,  # noqa: ARG001
    *,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="The run: its id, or the beginning of it, or a file that `export` has written.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All runs of the store.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Fold a run's journal again, and compare every state with what was recorded; nothing is done again."""
    from geartrain.cli import _show  # noqa: PLC0415

    if (run is None) == (not everything):
        raise InvalidValue("replay", "given a run or --all", run if run is not None else "neither")
    setting = setting_of(store=store, json=json, quiet=quiet)
    return await (_show.replay_all(setting) if run is None else _show.replay_run(setting, run))


@reading
async def step(
    context: typer.Context,  # noqa: ARG001
    *,
    run: RunOrFileArgument,
    at: Annotated[
        int | None,
        typer.Option(
            "--at", metavar="N", min=0, help="Only event N; with --push, 0 is before the first.", show_default=False
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All events, a line each.")] = False,
    push: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--push",
            metavar="TYPE JSON",
            help="What a hand-made event would do after event N (or the last).",
            show_default=False,
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="All of what events say and the model saw.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Go through a run event by event: state before, event, path, commands, state after, what the model saw.

    On a terminal it goes forth and back as you type (`?` says how). Nothing is done again, and what is pushed moves a
    copy.
    """
    from geartrain.cli import _step  # noqa: PLC0415

    setting = setting_of(store=store, json=json, quiet=quiet)
    return await _step.step(setting, run, at=at, everything=everything, pushed=push, full=full)

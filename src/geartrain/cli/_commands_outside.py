"""What somebody outside brings: the model's turns, and answers in a tool's place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from geartrain.cli._command import acting, reading, setting_of
from geartrain.cli._options import AppOption, JsonOption, RunArgument, StoreOption
from geartrain.errors import InvalidValue

if TYPE_CHECKING:
    from geartrain.cli._acts import Setting


@acting
async def reply(
    setting: Setting,
    *,
    run: RunArgument,
    text: Annotated[
        str, typer.Argument(metavar="[TEXT]", help="The answer, or what is said beside the calls.", show_default=False)
    ] = "",
    call: Annotated[
        list[str] | None,
        typer.Option(
            "--call",
            metavar="'TOOL JSON'",
            help="A call of a tool with its arguments, as in --call 'look {\"key\": 7}'; may be repeated.",
            show_default=False,
        ),
    ] = None,
    turn: Annotated[
        int | None,
        typer.Option("--turn", metavar="N", min=1, help="Only if it is this turn that is awaited.", show_default=False),
    ] = None,
) -> int:
    """Take the model's turn: with an answer, with calls, or with both; then go on with the run."""
    from geartrain.cli import _outside  # noqa: PLC0415

    return await _outside.reply(setting, run, text, tuple(call or ()), turn)


@acting
async def answer(
    setting: Setting,
    *,
    run: RunArgument,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[CALL] TEXT",
            help="The call, like t3.c1 (may be left out if only one waits for an answer), and its result.",
            show_default=False,
        ),
    ],
    status: Annotated[str, typer.Option("--status", metavar="ok|error", help="How the call went.")] = "ok",
) -> int:
    """Answer a call in its tool's place, and go on with the run."""
    from geartrain.cli import _outside  # noqa: PLC0415

    if len(words) > 2:
        raise InvalidValue("[CALL] TEXT", "at most a call and one text (quote it)", " ".join(words))
    call_id = words[0] if len(words) == 2 else None
    return await _outside.answer(setting, run, call_id, words[-1], status)


@reading
async def watch(
    context: typer.Context,  # noqa: ARG001
    *,
    run: RunArgument,
    tree: Annotated[bool, typer.Option("--tree", help="The run and all below it, as they change.")] = False,
    store: StoreOption = None,
    app: AppOption = None,
    json: JsonOption = False,
) -> int:
    """Watch a run, whichever process moves it: what has happened, and what happens until it ends.

    It only reads. With --json each record (with --tree: the whole tree whenever it has changed) is a line of its own.
    """
    if tree:
        from geartrain.cli import _tree  # noqa: PLC0415

        return await _tree.watch_tree(setting_of(store=store, app=app, json=json), run)
    from geartrain.cli import _watch  # noqa: PLC0415

    return await _watch.watch(setting_of(store=store, app=app, json=json), run)

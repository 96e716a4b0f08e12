"""The command `geartrain`: its commands, in the order in which help shows them."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from geartrain.cli._command import Command
from geartrain.cli._commands_decide import approve, deny, send, settle
from geartrain.cli._commands_keep import delete, prune, statistics
from geartrain.cli._commands_look import list_, show
from geartrain.cli._commands_outside import answer, reply, watch
from geartrain.cli._commands_run import run
from geartrain.cli._commands_steer import cancel, pause, resume
from geartrain.cli._commands_travel import export, replay, step
from geartrain.cli._commands_work import work

# A command's name is that of its function, without the underscore that keeps it from hiding a builtin.
COMMANDS: Final[tuple[Command, ...]] = (
    run,
    work,
    list_,
    show,
    watch,
    approve,
    deny,
    settle,
    send,
    reply,
    answer,
    pause,
    resume,
    cancel,
    replay,
    step,
    export,
    statistics,
    delete,
    prune,
)

_EPILOG: Final = """\
Exit codes: 0 finished, 1 failed, 2 wrong usage, 3 suspended, 4 cancelled, 130 after Ctrl-C, 143 after SIGTERM."""

typer_app = typer.Typer(
    name="geartrain",
    help="Durable agent runs: start them, watch them, approve what they want to do, and go on after a crash.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def main() -> None:
    """Run the command line, and exit with its code."""
    typer_app(prog_name="geartrain")


def _print_version(wanted: bool) -> None:
    if wanted:
        from geartrain import __version__  # noqa: PLC0415

        typer.echo(f"geartrain {__version__}")
        raise typer.Exit


@typer_app.callback()
def geartrain(
    context: typer.Context,
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Write the runtime's own log to standard error.")] = False,
) -> None:
    """Take the options that go before every command."""
    context.obj = {"debug": debug, "verbose": verbose, "version": version}


for _command in COMMANDS:
    typer_app.command(_command.__name__.strip("_").replace("_", "-"))(_command)

"""The commands, as typer sees them: each reads its options and hands them on.

The rest of the package is imported when a command runs, so that help and completion come at once.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from geartrain.cli._options import (
    AppOption,
    ByOption,
    CallArgument,
    JsonOption,
    NewStoreOption,
    QuietOption,
    ReasonOption,
    RunArgument,
    StoreOption,
)
from geartrain.errors import GeartrainError, InvalidValue, UsageError

if TYPE_CHECKING:
    from geartrain.cli._acts import Setting

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


def _state(given: str) -> str:
    """Return the state that *given* names, however it is written."""
    from geartrain.machine import RunState  # noqa: PLC0415

    if given.upper() not in set(RunState):
        raise typer.BadParameter(f"{given!r} is not one of {', '.join(RunState)}")
    return given.upper()


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


# These open no runtime, so nothing is logged, and the library that would be set up for it is slow to load.
_READING: Final = frozenset({"list_", "show", "replay"})


def _command(function: Callable[..., Coroutine[Any, Any, int]]) -> Callable[..., None]:
    """Register *function* as a command: it is run to its exit code, and errors of ours become one line."""

    @functools.wraps(function)
    def command(context: typer.Context, **options: Any) -> None:
        debug = bool(context.obj["debug"])
        verbose = bool(context.obj["verbose"])
        try:
            if verbose or function.__name__ not in _READING:
                _log_to_stderr(verbose=verbose)
            code = asyncio.run(function(context, **options))
        except GeartrainError as error:
            if debug:
                traceback.print_exc()
            code = _told(error)
        except KeyboardInterrupt:
            code = 130
        except BrokenPipeError:
            if function.__name__ not in _READING:
                raise
            # Whoever read has seen enough. What is still in the buffer would fail again when Python ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 0
        raise typer.Exit(code)

    typer_app.command(function.__name__.strip("_").replace("_", "-"))(command)
    return command


def _told(error: GeartrainError) -> int:
    from geartrain.cli._outcome import FAILED, USAGE  # noqa: PLC0415
    from geartrain.cli._screen import Screen  # noqa: PLC0415

    Screen().say(f"geartrain: {error}", "red")
    return USAGE if isinstance(error, UsageError) else FAILED


def _log_to_stderr(*, verbose: bool) -> None:
    """Write the log in plain lines, or (without *verbose*) not at all; never to standard output."""
    import structlog  # noqa: PLC0415 - help needs no log

    from geartrain.cli._text import safe  # noqa: PLC0415

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["level", "event"], bool_as_flag=False),
            lambda _logger, _name, line: safe(str(line)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger("debug" if verbose else "critical"),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr) if verbose else structlog.ReturnLoggerFactory(),
    )


def _setting(
    *, store: Path | None, app: str | None = None, by: str | None = None, json: bool = False, quiet: bool = False
) -> Setting:
    from geartrain.cli._acts import Setting  # noqa: PLC0415
    from geartrain.cli._screen import Screen  # noqa: PLC0415
    from geartrain.cli._stores import Index  # noqa: PLC0415

    try:
        folder = Path.cwd()
    except FileNotFoundError:
        raise UsageError("the present folder is gone; change to another one") from None
    return Setting(
        screen=Screen(json=json, quiet=quiet),
        folder=folder,
        index=Index(os.environ),
        store=store,
        app=app,
        by=by if by is not None else _login(),
    )


def _login() -> str:
    import getpass  # noqa: PLC0415

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name in the environment, none in the user database
        return f"uid {os.getuid()}"


@_command
async def run(
    context: typer.Context,  # noqa: ARG001 - read by the wrapper
    *,
    question: Annotated[
        str, typer.Argument(metavar="QUESTION", help="What the agent is to find out or do.", show_default=False)
    ],
    root: Annotated[
        Path, typer.Option("--root", metavar="DIR", help="The folder whose files the agent may read.")
    ] = Path(),
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

    setting = _setting(store=store, app=app, by=by, json=json, quiet=quiet)
    request = _acts.Request(question=question, agent=agent, root=root, write=write, model=model, max_turns=max_turns)
    return await _acts.start(setting, request)


@_command
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
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Only runs that wait for an approval, an input or a word on a doubt.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="How many at most.")] = 20,
    everything: Annotated[bool, typer.Option("--all", help="All of them, however many.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """List runs, the newest first."""
    from geartrain.cli import _show  # noqa: PLC0415

    return await _show.list_runs(
        _setting(store=store, json=json),
        states=state or (),
        agent=agent,
        waiting=waiting,
        limit=None if everything else limit,
    )


@_command
async def show(
    context: typer.Context,  # noqa: ARG001
    *,
    run: RunArgument,
    full: Annotated[bool, typer.Option("--full", help="Also what each model call saw.")] = False,
    store: StoreOption = None,
    app: AppOption = None,
    json: JsonOption = False,
) -> int:
    """Show one run: how it stands, and all that happened, with times, calls, results and decisions."""
    from geartrain.cli import _show  # noqa: PLC0415

    return await _show.show(_setting(store=store, app=app, json=json), run, full=full)


@_command
async def approve(
    context: typer.Context,  # noqa: ARG001
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
    store: StoreOption = None,
    app: AppOption = None,
    by: ByOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Approve a call that waits for it, and go on with the run."""
    from geartrain.cli import _acts  # noqa: PLC0415

    setting = _setting(store=store, app=app, by=by, json=json, quiet=quiet)
    return await _acts.decide(setting, run, call, approved=True, reason=reason, arguments=arguments, remember=remember)


@_command
async def deny(
    context: typer.Context,  # noqa: ARG001
    *,
    run: RunArgument,
    call: CallArgument = None,
    reason: ReasonOption = "",
    store: StoreOption = None,
    app: AppOption = None,
    by: ByOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Deny a call that waits for approval: the run ends, or goes on without it, as its agent says."""
    from geartrain.cli import _acts  # noqa: PLC0415

    setting = _setting(store=store, app=app, by=by, json=json, quiet=quiet)
    return await _acts.decide(setting, run, call, approved=False, reason=reason)


@_command
async def settle(
    context: typer.Context,  # noqa: ARG001
    *,
    run: RunArgument,
    call: CallArgument = None,
    done: Annotated[bool, typer.Option("--done", help="It was done.")] = False,
    text: Annotated[
        str | None, typer.Option("--text", metavar="TEXT", help="With --done: what its result was.", show_default=False)
    ] = None,
    run_it: Annotated[bool, typer.Option("--run", help="It was not done: run it.")] = False,
    skip: Annotated[bool, typer.Option("--skip", help="It was not done: go on without it.")] = False,
    store: StoreOption = None,
    app: AppOption = None,
    by: ByOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Settle a doubt: say whether a write whose result was lost was done, and go on with the run."""
    from geartrain.cli import _acts  # noqa: PLC0415

    if done + run_it + skip != 1:
        raise InvalidValue("settle", "given one of --done, --run and --skip", _given(done=done, run=run_it, skip=skip))
    if text is not None and not done:
        raise InvalidValue("--text", "given with --done only", text)
    setting = _setting(store=store, app=app, by=by, json=json, quiet=quiet)
    return await _acts.settle(
        setting, run, call, done=done, not_done="run" if run_it else "skip" if skip else "", text=text or ""
    )


def _given(**flags: bool) -> str:
    return " ".join(f"--{name}" for name, value in flags.items() if value) or "none"


@_command
async def send(
    context: typer.Context,  # noqa: ARG001
    *,
    run: RunArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say.", show_default=False)],
    store: StoreOption = None,
    app: AppOption = None,
    by: ByOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Say something to a run: it answers what was asked, or is heard at the next model call.

    While another process drives a run of the same store, that process owns the store, and this is refused with its
    pid.
    """
    from geartrain.cli import _acts  # noqa: PLC0415

    return await _acts.send(_setting(store=store, app=app, by=by, json=json, quiet=quiet), run, text)


@_command
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

    return await _acts.pause(_setting(store=store, app=app, by=by, json=json, quiet=quiet), run, reason)


@_command
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
    return await _acts.resume(_setting(store=store, app=app, by=by, json=json, quiet=quiet), run, budget)


@_command
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

    return await _acts.cancel(_setting(store=store, app=app, by=by, json=json, quiet=quiet), run, reason)


@_command
async def replay(
    context: typer.Context,  # noqa: ARG001
    *,
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="The run: its id, or the beginning of it.", show_default=False)
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
    setting = _setting(store=store, json=json, quiet=quiet)
    return await (_show.replay_all(setting) if run is None else _show.replay_run(setting, run))

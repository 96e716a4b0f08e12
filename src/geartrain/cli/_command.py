"""What all commands have in common: errors that become one line, exit codes, the log, and the setting they work in.

The rest of the package is imported when a command runs, so that help and completion come at once.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_type_hints

import typer

from geartrain.cli._options import AppOption, ByOption, JsonOption, QuietOption, StoreOption
from geartrain.errors import GeartrainError, UsageError

if TYPE_CHECKING:
    from geartrain.cli._acts import Setting

Command = Callable[..., None]
_Function = Callable[..., Coroutine[Any, Any, int]]

# What makes the setting of a command that acts on a run that is there; after the options of its own.
_SETTING: Final = tuple(
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=option)
    for name, option, default in (
        ("store", StoreOption, None),
        ("app", AppOption, None),
        ("by", ByOption, None),
        ("json", JsonOption, False),
        ("quiet", QuietOption, False),
    )
)


def command(function: _Function) -> Command:
    """Return *function* as a command: it is run to its exit code, and errors of ours become one line."""

    @functools.wraps(function)
    def run(context: typer.Context, **options: Any) -> None:
        raise typer.Exit(_code_of(function, context, options, logs=True))

    return run


def reading(function: _Function) -> Command:
    """Return *function* as a command that only reads, and whose reader may go away at any time.

    It opens no runtime, so nothing is logged, and the library that would be set up for it is slow to load.
    """

    @functools.wraps(function)
    def run(context: typer.Context, **options: Any) -> None:
        try:
            code = _code_of(function, context, options, logs=context.obj["verbose"])
        except BrokenPipeError:
            # Whoever read has seen enough. What is still in the buffer would fail again when Python ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 0
        raise typer.Exit(code)

    return run


def acting(function: _Function) -> Command:
    """Return *function*, which acts on a run in a setting, as a command: with the options that make the setting."""
    own = inspect.signature(function)
    hints = get_type_hints(function, localns={"Setting": object}, include_extras=True)

    @functools.wraps(function)
    async def act(_context: typer.Context, **options: Any) -> int:
        setting = setting_of(**{option.name: options.pop(option.name) for option in _SETTING})
        return await function(setting, **options)

    run = command(act)
    options = [each.replace(annotation=hints[each.name]) for each in own.parameters.values() if each.name != "setting"]
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = (context, *options, *_SETTING)
    run.__signature__ = own.replace(parameters=parameters, return_annotation=None)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _code_of(function: _Function, context: typer.Context, options: dict[str, Any], *, logs: bool) -> int:
    from geartrain.cli._leaving import CommandRunner  # noqa: PLC0415 - loads asyncio

    if logs:
        _log_to_stderr(verbose=context.obj["verbose"])
    runner, code = CommandRunner(), 1
    try:
        code = runner.run(function(context, **options))
    except GeartrainError as error:
        if context.obj["debug"]:
            traceback.print_exc()
        code = _told(error)
    except KeyboardInterrupt:
        code = 130
    finally:
        runner.close(code)
    return code


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


def setting_of(
    *, store: Path | None, app: str | None = None, by: str | None = None, json: bool = False, quiet: bool = False
) -> Setting:
    """Return where and for whom a command works."""
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

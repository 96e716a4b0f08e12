"""The arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

STORE_VARIABLE: Final = "GEARTRAIN_STORE"

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="The run: its id, or the beginning of it.", show_default=False)
]
RunOrFileArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The run: its id, or the beginning of it, or a file that `export` has written.",
        show_default=False,
    ),
]
CallArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[CALL]",
        help="The call, like t3.c1 (or RUN/t3.c1 of a run below it); may be left out if only one waits.",
        show_default=False,
    ),
]
StoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="PATH",
        envvar=STORE_VARIABLE,
        help="The store. By default .geartrain/runs.db here or in a folder above, or the store that has the run.",
        show_default=False,
    ),
]
NewStoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="PATH",
        envvar=STORE_VARIABLE,
        help="Where runs are kept; made if it is not there. [default: .geartrain/runs.db]",
        show_default=False,
    ),
]
RootOption = Annotated[
    Path | None,
    typer.Option(
        "--root", metavar="DIR", help="The folder whose files the agent may read. [default: .]", show_default=False
    ),
]
ContinueOption = Annotated[
    str | None,
    typer.Option(
        "--continue",
        metavar="RUN",
        help="Go on from a run that has ended: with what was said there, its agent and its folder.",
        show_default=False,
    ),
]
AppOption = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:ATTR",
        help="Your agents: an Agent, several, or what has `agents` and perhaps `policy`. "
        "By default `app` under [tool.geartrain] in the nearest pyproject.toml.",
        show_default=False,
    ),
]
ByOption = Annotated[
    str | None,
    typer.Option("--by", metavar="NAME", help="Who acts, for the record; by default your login.", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress.")]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record.", show_default=False)]

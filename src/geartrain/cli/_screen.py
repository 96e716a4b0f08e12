"""Where a command writes: answers and JSON to standard output, everything about them to standard error."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import msgspec

from geartrain.cli._errors import OutputFailed
from geartrain.cli._text import safe, safe_json


class Screen:
    """The two outputs of one command. What is said is made safe here, once, wherever it came from.

    A standard error that nobody reads any more is written to no longer; a standard output that nobody reads ends
    the command (`BrokenPipeError`).
    """

    def __init__(self, *, json: bool = False, quiet: bool = False) -> None:
        self.json = json
        self.quiet = quiet
        self._in_progress = False  # whether the line that the cursor is in is to be replaced
        if sys.stderr is None:  # closed when the process began; `print` would take standard output instead
            sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")

    @property
    def interactive(self) -> bool:
        """Whether a person can be asked: standard input and standard error are a terminal."""
        return _is_terminal(sys.stdin) and _is_terminal(sys.stderr)

    @property
    def browsable(self) -> bool:
        """Whether a person can be shown one thing after the other: standard input and output are a terminal."""
        return _is_terminal(sys.stdin) and self.shown

    @property
    def shown(self) -> bool:
        """Whether standard output is a terminal."""
        return _is_terminal(sys.stdout)

    @property
    def moving(self) -> bool:
        """Whether how far something has come is shown at all."""
        return not self.quiet and _is_terminal(sys.stderr)

    def say(self, text: str, style: str = "") -> None:
        """Write a line to standard error, coloured if that is a terminal."""
        self._say(safe(text), style)

    def tell(self, text: str, style: str = "") -> None:
        """Write a line about progress to standard error, unless the command is to be quiet."""
        if not self.quiet:
            self._say(safe(text), style)

    def answer(self, text: str) -> None:
        """Write text to standard output."""
        with _explained():
            print(safe(text), flush=True)  # noqa: T201 - this is where a command prints

    def print_json(self, value: Any) -> None:
        """Write *value* as JSON to standard output: UTF-8, whatever the locale says."""
        text = safe_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
        self.write(text.encode() + b"\n")

    def print_json_line(self, value: Any) -> None:
        """Write *value* as JSON in one line."""
        self.write(safe_json(msgspec.json.encode(value).decode()).encode() + b"\n")

    def write(self, data: bytes) -> None:
        """Write UTF-8 to standard output as it is."""
        with _explained():
            buffer = getattr(sys.stdout, "buffer", None)
            if buffer is None:
                print(data.decode(), end="")  # noqa: T201 - this is where a command prints
            else:
                buffer.write(data)
                sys.stdout.flush()

    def progress(self, text: str) -> None:
        """Show how far something long has come, in one line that the next call replaces; on a terminal only."""
        if not self.moving:
            return
        try:
            sys.stderr.write(f"\r\x1b[K{safe(text)[: shutil.get_terminal_size().columns - 1]}")
            sys.stderr.flush()
            self._in_progress = bool(text)
        except OSError:  # as with all that is told: what is done goes on
            self.quiet = True

    def _say(self, text: str, style: str) -> None:
        if self._in_progress:
            self.progress("")
        try:
            if style and _is_terminal(sys.stderr):
                _coloured(text, style)
            else:
                print(text, file=sys.stderr, flush=True)  # noqa: T201 - this is where a command prints
        except OSError:  # nobody reads it, or there is no room for it; what is done goes on
            self.quiet = True


@contextmanager
def _explained() -> Iterator[None]:
    """Raise what hinders writing to standard output as an error of ours; a reader that went away ends the command."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        # What is still in the buffer would fail again when Python ends, with a message of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OutputFailed(error.strerror or str(error)) from None


def _coloured(text: str, style: str) -> None:
    from rich.console import Console  # noqa: PLC0415 - only when there is a terminal to colour
    from rich.text import Text  # noqa: PLC0415

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(Text(text, style=style))


def _is_terminal(stream: IO[str] | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()

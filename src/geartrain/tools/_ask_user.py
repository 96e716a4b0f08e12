"""The tool by which an agent asks its user something."""

from __future__ import annotations

import dataclasses
from typing import Final

from geartrain.tools._tool import Tool, tool


@tool(name="ask_user")
def _ask_user(question: str) -> str:
    """Ask the user a question and wait for the answer. Ask only what you cannot find out yourself.

    Args:
        question: One clear question.
    """
    raise NotImplementedError(f"the run waits for somebody to answer: {question!r}")


ask_user: Final[Tool] = dataclasses.replace(_ask_user, kind="ask_user")
"""Asks the user something: the run is suspended (hold `input`) until somebody answers with `RunHandle.send`.

No policy is asked: asking does nothing. Without an answer within the time of an approval the result is `timed_out`.
"""

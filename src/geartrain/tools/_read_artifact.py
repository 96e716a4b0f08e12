"""The tool by which a model reads the rest of a result that it was not shown all of."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from geartrain.machine import READ_ARTIFACT
from geartrain.tools._context import ToolContext
from geartrain.tools._errors import ResultUnavailable
from geartrain.tools._tool import tool

# Fits what a model is shown of a result by default, so that nothing is cut out of its middle.
OUTPUT_BYTES_MAX: Final = 15_000


@tool(name=READ_ARTIFACT, read_only=True)
async def read_artifact(
    context: ToolContext,
    call: str,
    offset: Annotated[int, Meta(ge=0)] = 0,
    limit: Annotated[int, Meta(ge=1, le=OUTPUT_BYTES_MAX)] = 8_000,
) -> str:
    """Read an earlier result of this conversation again: one that was shortened, or is not shown any more.

    Args:
        context: The call.
        call: Which call's result, as named where it was shortened, like `t3.c2`.
        offset: The first character to read, counted from 0.
        limit: How many characters to read at most.
    """
    text = await context.result_of(call)
    if offset >= len(text) > 0:
        raise ResultUnavailable(call, f"its result has {len(text):,} characters; offset is {offset:,}")
    part = text[offset : offset + limit].encode()[:OUTPUT_BYTES_MAX].decode(errors="ignore")
    end = offset + len(part)
    more = f"; continue with offset={end}" if end < len(text) else ""
    return f"[{call}: characters {offset:,} to {end:,} of {len(text):,}{more}]\n{part}"

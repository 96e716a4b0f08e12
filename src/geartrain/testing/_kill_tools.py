"""The tools of a reference run that a worker process has to find: at the top of a module that is soon imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geartrain.testing.ledger import Ledger
from geartrain.tools import Done, NotDone, ToolContext, Unknown, tool


def found_in(arguments: Mapping[str, Any], context: ToolContext) -> Done | NotDone | Unknown:
    """Say whether a text was posted, from what is written in the ledger."""
    posted = Ledger(arguments["book"]).has("start", context.idempotency_key)
    return Done(f"posted {arguments['text']}") if posted else NotDone()


@tool(isolation="process", verify=found_in)
def post_apart(text: str, book: str, context: ToolContext) -> str:
    """Post a text, from a process of its own."""
    with Ledger(book).effect(context.idempotency_key, "write", {"text": text, "book": book}):
        return f"posted {text}"


@tool(read_only=True, isolation="process")
def look_apart(at: str, book: str, context: ToolContext) -> str:
    """Look at something, from a process of its own."""
    with Ledger(book).effect(context.idempotency_key, "read", {"at": at, "book": book}):
        return f"saw {at}"

"""The offline model: needs no key and no network."""

from __future__ import annotations

from geartrain.models._protocol import Emit, ModelReply, ModelRequest


class OfflineModel:
    """A deterministic model without a network: searches, reads, follows what it finds, and answers with citations.

    It knows tools by what they do (list, read, search, write); another tool that only reads is asked if it fits the
    question. If the run's context names a file under `write`, the report is saved there before the answer.
    It can summarise, but not well: an agent has it do so only if its `window` says so.
    """

    summarises = False
    reports_cost = True  # it has none

    def __init__(self, *, name: str = "offline") -> None:
        self.name: str = name

    async def reply(self, request: ModelRequest, emit: Emit, /) -> ModelReply:
        """Return the next calls, or the answer. The same request gives the same reply; it never fails."""
        # Half a second of word lists and patterns that only a run of this model needs.
        from geartrain.models._offline._researcher import decide  # noqa: PLC0415

        reply = decide(request)
        if reply.text:
            emit(reply.text)
        return reply

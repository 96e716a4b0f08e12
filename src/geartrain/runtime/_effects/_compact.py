"""Summarising the oldest part of the context as an effect: a call of a model like any other, but no turn."""

from __future__ import annotations

from typing import Any

from geartrain.machine import CompactContext, CompactionFailed, ContextCompacted, Event
from geartrain.models import ModelReply, ModelRequest
from geartrain.runtime._edge import clean_text, usable_usage
from geartrain.runtime._effects._model import ModelCallEffect
from geartrain.runtime._effects._requests import summary_request
from geartrain.runtime._node import RunAtWork


class CompactEffect(ModelCallEffect):
    """A model that summarises the oldest part of the context.

    Whether the summary is of use is the run's to judge: one that is empty, or no shorter than what it would replace,
    changes nothing. What a summary says is never taken for more than a note to the model.
    """

    __slots__ = ()

    command: CompactContext

    def request(self, actor: RunAtWork) -> ModelRequest:
        """Return the request for a summary."""
        return summary_request(actor.run, actor.specs[actor.run.spec], self.command.messages)

    def about(self) -> dict[str, Any]:
        """Name what the call is for."""
        return {"purpose": "compact"}

    def replied(self, reply: Any) -> Event:
        """Return the summary, or that what came is none."""
        if not (isinstance(reply, ModelReply) and isinstance(reply.text, str)):
            return self.failed(None, f"the model client gave {type(reply).__name__}, not a ModelReply with text")
        return ContextCompacted(
            id=f"{self.key}.compacted",
            time=self.node.clock.now(),
            source="model",
            summary=clean_text(reply.text[: self.node.limits.event_bytes // 4]),
            replaced=self.command.messages,
            usage=usable_usage(reply.usage),
        )

    def failed(self, error: BaseException | None, problem: str) -> Event:  # noqa: ARG002 - whatever it was, there is none
        """Return that there is no summary."""
        return CompactionFailed(
            id=f"{self.key}.failed", time=self.node.clock.now(), source="model", message=clean_text(problem)
        )

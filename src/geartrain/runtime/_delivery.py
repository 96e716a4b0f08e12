"""An event on its way into a run, and where its fate is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from geartrain.actors import Reply
from geartrain.machine import AgentSpec, Event, Refusal, Run, step
from geartrain.runtime._entry import Moved, head_of, stored
from geartrain.runtime._node import FoundSpecs

NOTHING: Final[Mapping[str, bytes]] = {}


class Delivery:
    """An event on its way into a run, and where its fate is told."""

    __slots__ = ("artifacts", "event", "inbox", "outside", "reply", "settled", "specs")

    def __init__(
        self,
        event: Event,
        *,
        outside: bool,
        reply: Reply[int] | None = None,
        artifacts: Mapping[str, bytes] = NOTHING,
        specs: FoundSpecs | None = None,
        inbox: int | None = None,
        settled: Callable[[], object] | None = None,
    ) -> None:
        self.event = event
        self.outside = outside
        self.reply = reply
        self.artifacts = artifacts
        self.specs = specs
        self.inbox = inbox
        # Called at once when its fate is known, before anything follows from it: a reply is heard a turn later.
        self.settled = settled

    def accept(self, seq: int) -> None:
        """Tell that the event is stored as number *seq*."""
        if self.settled is not None:
            self.settled()
        if self.reply is not None:
            self.reply.answer(seq)

    def fail(self, error: Exception) -> None:
        """Tell that the event is not stored."""
        if self.settled is not None:
            self.settled()
        if self.reply is not None:
            self.reply.fail(error)


def kept(batch: Sequence[Delivery], error: Exception) -> list[Delivery]:
    """Fail what came from outside; return what effects and other runs brought, which nobody brings again.

    Of alarms one each: however long the store fails, the timer brings what is due again and again.
    """
    left: list[Delivery] = []
    rung: set[str] = set()
    for delivery in batch:
        event = delivery.event
        if delivery.outside and delivery.inbox is None:
            delivery.fail(error)
        elif event.source != "timer" or event.id not in rung:
            rung.add(event.id)
            left.append(delivery)
    return left


def culprit_of(batch: Sequence[Delivery], run: Run, specs: Mapping[str, AgentSpec]) -> Delivery | None:
    """Return the first delivery of *batch* that cannot be stepped through or stored: by trying, which is pure.

    None if that is none of several: whatever failed, it was not the step.
    """
    for delivery in batch:
        try:
            known = {**specs, **{name: spec for name, (spec, _) in (delivery.specs or {}).items()}}
            result = step(run, delivery.event, known)
            if not isinstance(result, Refusal):
                run = result.run
                stored(Moved(delivery.event, run, "", ()))
                head_of(run, known[run.spec])
        except Exception:  # noqa: BLE001 - whatever it was, it was logged when it happened first
            return delivery
    return batch[0] if len(batch) == 1 else None

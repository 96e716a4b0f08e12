"""A model that is somebody outside: a person, or another program."""

from __future__ import annotations

from geartrain.machine import EXTERNAL
from geartrain.models._protocol import Emit, ModelRejected, ModelReply, ModelRequest


class ExternalModel:
    """Stands for somebody outside who takes the model's turns with `RunHandle.reply` (or `geartrain reply`).

    A run that waits for a turn rests: it needs no process. Its wait ends after `Limits.external_seconds`.
    `Agent(model="external")` is the same.
    """

    name: str = EXTERNAL
    summarises = False
    reports_cost = True  # it has none

    async def reply(self, request: ModelRequest, emit: Emit, /) -> ModelReply:  # noqa: ARG002 - the protocol's
        """Refuse: only a run that was started with another model asks here.

        Raises:
            ModelRejected: Always.
        """
        raise ModelRejected(self.name, f"run {request.run_id!r} was started with a model of its own; this one is none")

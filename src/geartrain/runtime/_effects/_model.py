"""Model calls and asynchronous policies as effects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

from msgspec.structs import replace

from geartrain.machine import (
    CallModel,
    CompactContext,
    EvaluatePermissions,
    Event,
    ModelFailed,
    PermissionsEvaluated,
)
from geartrain.models import (
    ContextTooLong,
    Model,
    ModelRejected,
    ModelReply,
    ModelRequest,
    ModelUnavailable,
    backoff_seconds,
    is_retryable,
)
from geartrain.runtime._edge import clean_text, replied
from geartrain.runtime._effects._effect import Effect, Registry
from geartrain.runtime._effects._requests import model_request
from geartrain.runtime._judging import PendingVerdicts, ask_about
from geartrain.runtime._log import log_verdicts
from geartrain.runtime._node import RunAtWork
from geartrain.runtime._tasks import End, Ended
from geartrain.tools import error_text

# With these a provider has said that it did not do the work.
_TOLD: Final = (ModelUnavailable, ModelRejected, ContextTooLong)
# The most of one piece of a reply that is shown live.
DELTA_CHARACTERS: Final = 64 * 1024


class ModelCallEffect(Effect):
    """A call of a model with its attempts: each in a task of its own, back-off between them, none outside its gate.

    Subclasses say what is asked, and what becomes of a reply or of the last failure.
    """

    __slots__ = ("_lost", "_model", "_pause", "_tries")

    command: CallModel | CompactContext

    def __init__(self, effects: Registry, run_id: str, command: CallModel | CompactContext, model: Model) -> None:
        super().__init__(effects, run_id, command)
        self._model = model
        self._tries = 0
        # Attempts that ended without a word from the provider: it may have done its work, and charges it.
        self._lost = 0
        self._pause: asyncio.TimerHandle | None = None

    def begin(self, _actor: RunAtWork) -> None:
        """Queue for a call of this model."""
        self.effects.gate(self._model.name).request(self, self._start)

    def work(self, actor: RunAtWork) -> Awaitable[ModelReply]:
        """Return the work of asking the model about the run as it is now."""
        return self.effects.executor.call_model(self._model, self.request(actor), self.emit)

    def request(self, actor: RunAtWork) -> ModelRequest:
        """Return what the model is asked."""
        raise NotImplementedError

    def emit(self, text: str) -> None:
        """Take a piece of the reply while it comes."""

    def replied(self, reply: Any) -> Event:
        """Return the event that a reply is."""
        raise NotImplementedError

    def failed(self, error: BaseException | None, problem: str) -> Event:
        """Return the event that a failure is after which there is no further attempt."""
        raise NotImplementedError

    def about(self) -> dict[str, Any]:
        """Return what a record of a failed attempt says of the call."""
        raise NotImplementedError

    def _start(self) -> None:
        actor = self.node.actors.get(self.run_id)
        if self.unwanted or self.quiet or actor is None:
            self.effects.gate(self._model.name).release(self)
            return
        self._tries += 1
        try:
            self.spawn(self.work(actor), self.node.limits.model_call_seconds)
        except Exception as error:  # noqa: BLE001 - the gate must go on, whatever is wrong with this one
            self.broken(error)

    def ended(self, ended: Ended) -> None:
        """Report the reply, try again, or report the failure."""
        self.effects.gate(self._model.name).release(self)
        if ended.end is End.CANCELLED:
            self.finished()
            return
        if ended.end is End.RETURNED:
            self._report(self.replied(ended.value))
            return
        limits = self.node.limits
        error = ended.error if ended.end is End.RAISED else None
        self._lost += not isinstance(error, _TOLD)
        retryable = error is None or is_retryable(error)
        what = error_text(error) if error is not None else f"no reply within {limits.model_call_seconds:g} s"
        if retryable and self._tries < limits.model_attempts:
            self._try_again(error, what)
        else:
            attempts = f" (after {self._tries} attempts)" if self._tries > 1 else ""
            self._report(self.failed(error, clean_text(what + attempts)))

    def _report(self, event: Event) -> None:
        self.report(replace(event, lost_attempts=self._lost) if self._lost else event)

    def _try_again(self, error: BaseException | None, what: str) -> None:
        wish = getattr(error, "retry_after_seconds", None)
        if self.node.closing:  # nothing new starts; the run asks again when it is opened
            self.finished(reconcile=False)
            return
        delay = backoff_seconds(self._tries, retry_after=wish, jitter=self.node.rng.random())
        payload = {**self.about(), "attempt": self._tries, "error": what, "retry_in_seconds": round(delay, 3)}
        self.node.hub.live(self.run_id, "llm_attempt_failed", payload)
        self._pause = asyncio.get_running_loop().call_later(delay, self._again)

    def _again(self) -> None:
        self._pause = None
        self.effects.gate(self._model.name).request(self, self._start)

    def stop(self) -> None:
        """Have it stop, also while it waits for its next attempt."""
        if self._pause is not None:
            self._pause.cancel()
        if self.task is None:
            self.effects.gate(self._model.name).release(self)
        super().stop()


class ModelEffect(ModelCallEffect):
    """A turn of the model."""

    __slots__ = ()

    command: CallModel

    def request(self, actor: RunAtWork) -> ModelRequest:
        """Return the turn's request."""
        return model_request(actor.run, actor.specs[actor.run.spec], self.command)

    def emit(self, text: str) -> None:
        """Show a piece of the reply live."""
        text = text[:DELTA_CHARACTERS] if isinstance(text, str) else f"({type(text).__name__})"
        self.node.hub.live_from_anywhere(self.run_id, "llm_delta", {"turn": self.command.turn, "text": text})

    def about(self) -> dict[str, Any]:
        """Name the turn."""
        return {"turn": self.command.turn}

    def replied(self, reply: Any) -> Event:
        """Return the reply as it is stored."""
        return replied(
            reply,
            event_id=f"{self.key}.replied",
            time=self.node.clock.now(),
            turn=self.command.turn,
            attempt=self.command.attempt,
            model=self._model.name,
            limits=self.node.limits,
        )

    def failed(self, error: BaseException | None, problem: str) -> Event:
        """Return the failure; of a context that is too long, the run makes less."""
        return ModelFailed(
            id=f"{self.key}.failed",
            time=self.node.clock.now(),
            source="model",
            turn=self.command.turn,
            attempt=self.command.attempt,
            code="context_too_long" if isinstance(error, ContextTooLong) else "model_failed",
            message=problem,
        )


class PolicyEffect(Effect):
    """Asynchronous policies that were asked in line and are now waited for."""

    __slots__ = ("_pending",)

    command: EvaluatePermissions

    def __init__(self, effects: Registry, run_id: str, command: EvaluatePermissions) -> None:
        super().__init__(effects, run_id, command)
        self._pending: PendingVerdicts | None = None

    def begin(self, actor: RunAtWork) -> None:
        """Wait for them."""
        pending = actor.pending_verdicts.pop(self.key, None)
        if pending is None:  # asked by an actor that is gone: ask again
            self.finished(reconcile=False)
            actor.ask_policy_again(self.command)
            return
        self._pending = pending
        limits = self.node.limits
        # All of them together end before the run would take their answers for lost.
        seconds, total = limits.policy_seconds, limits.policy_seconds + limits.dwell_seconds / 2
        work = self.effects.executor.evaluate(self.command, pending.waiting(seconds, total))
        self.spawn(work, total + limits.dwell_seconds / 4)

    def finished(self, *, reconcile: bool = True) -> None:
        """Leave the registry, and let go of what policies still owe."""
        if self._pending is not None:
            self._pending.drop()
        super().finished(reconcile=reconcile)

    def ended(self, ended: Ended) -> None:
        """Report the verdicts; a policy that does not end asks a person."""
        if ended.end is End.CANCELLED:
            self.finished()
            return
        if ended.end is End.RETURNED:
            verdicts = ended.value
        else:
            problem = error_text(ended.error) if ended.error is not None else "the policy did not end in time"
            verdicts = ask_about(self.command.call_ids, problem)
        event = PermissionsEvaluated(
            id=self.key,
            time=self.node.clock.now(),
            source="policy",
            verdicts=log_verdicts(self.run_id, verdicts),
            evaluation=self.command.evaluation,
        )
        self.report(event)

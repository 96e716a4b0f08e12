"""Model calls, asynchronous policies and summaries as effects."""

from __future__ import annotations

import asyncio
from typing import Final

from geartrain.machine import (
    CallModel,
    CompactContext,
    CompactionFailed,
    ContextCompacted,
    EvaluatePermissions,
    Event,
    ModelFailed,
    PermissionsEvaluated,
)
from geartrain.models import ContextTooLong, Model, backoff_seconds, is_retryable
from geartrain.runtime._edge import clean_text, replied, usable_usage
from geartrain.runtime._effect import Effect, Registry
from geartrain.runtime._judging import PendingVerdicts, ask_about
from geartrain.runtime._node import RunAtWork
from geartrain.runtime._requests import model_request, summary_request
from geartrain.runtime._tasks import End, Ended
from geartrain.tools import error_text

# The most of one piece of a reply that is shown live.
DELTA_CHARACTERS: Final = 64 * 1024


class ModelEffect(Effect):
    """A model call with its attempts: each in a task of its own, back-off between them."""

    __slots__ = ("_model", "_pause", "_tries")

    command: CallModel

    def __init__(self, effects: Registry, run_id: str, command: CallModel, model: Model) -> None:
        super().__init__(effects, run_id, command)
        self._model = model
        self._tries = 0
        self._pause: asyncio.TimerHandle | None = None

    def begin(self, _actor: RunAtWork) -> None:
        """Queue for a call of this model."""
        self.effects.gate(self._model.name).request(self, self._start)

    def _start(self) -> None:
        actor = self.node.actors.get(self.run_id)
        if self.unwanted or self.quiet or actor is None:
            self.effects.gate(self._model.name).release(self)
            return
        self._tries += 1
        try:
            request = model_request(actor.run, actor.specs[actor.run.spec], self.command)
            work = self.effects.executor.call_model(self._model, request, self._emit)
            self.spawn(work, self.node.limits.model_call_seconds)
        except Exception as error:  # noqa: BLE001 - the gate must go on, whatever is wrong with this one
            self.broken(error)

    def _emit(self, text: str) -> None:
        text = text[:DELTA_CHARACTERS] if isinstance(text, str) else f"({type(text).__name__})"
        self.node.hub.live_from_anywhere(self.run_id, "llm_delta", {"turn": self.command.turn, "text": text})

    def ended(self, ended: Ended) -> None:
        """Report the reply, try again, or report the failure."""
        self.effects.gate(self._model.name).release(self)
        node, command = self.node, self.command
        if ended.end is End.CANCELLED:
            self.finished()
            return
        if ended.end is End.RETURNED:
            event: Event = replied(
                ended.value,
                event_id=f"{self.key}.replied",
                time=node.clock.now(),
                turn=command.turn,
                attempt=command.attempt,
                model=self._model.name,
                limits=node.limits,
            )
            self.report(event)
            return
        error = ended.error if ended.end is End.RAISED else None
        retryable = error is None or is_retryable(error)
        what = error_text(error) if error is not None else f"no reply within {node.limits.model_call_seconds:g} s"
        if retryable and self._tries < node.limits.model_attempts:
            self._try_again(error, what)
        else:
            self._fail(error, what)

    def _try_again(self, error: BaseException | None, what: str) -> None:
        wish = getattr(error, "retry_after_seconds", None)
        if self.node.closing:  # nothing new starts; the run asks again when it is opened
            self.finished(reconcile=False)
            return
        delay = backoff_seconds(self._tries, retry_after=wish, jitter=self.node.rng.random())
        payload = {
            "turn": self.command.turn,
            "attempt": self._tries,
            "error": what,
            "retry_in_seconds": round(delay, 3),
        }
        self.node.hub.live(self.run_id, "llm_attempt_failed", payload)
        self._pause = asyncio.get_running_loop().call_later(delay, self._again)

    def _again(self) -> None:
        self._pause = None
        self.effects.gate(self._model.name).request(self, self._start)

    def _fail(self, error: BaseException | None, what: str) -> None:
        code = "context_too_long" if isinstance(error, ContextTooLong) else "model_failed"
        attempts = f" (after {self._tries} attempts)" if self._tries > 1 else ""
        event = ModelFailed(
            id=f"{self.key}.failed",
            time=self.node.clock.now(),
            source="model",
            turn=self.command.turn,
            attempt=self.command.attempt,
            code=code,  # type: ignore[arg-type]
            message=clean_text(what + attempts),
        )
        self.report(event)

    def stop(self) -> None:
        """Have it stop, also while it waits for its next attempt."""
        if self._pause is not None:
            self._pause.cancel()
        if self.task is None:
            self.effects.gate(self._model.name).release(self)
        super().stop()


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
            verdicts=verdicts,
            evaluation=self.command.evaluation,
        )
        self.report(event)


class CompactEffect(Effect):
    """A model that summarises the oldest part of the context."""

    __slots__ = ("_model",)

    command: CompactContext

    def __init__(self, effects: Registry, run_id: str, command: CompactContext, model: Model) -> None:
        super().__init__(effects, run_id, command)
        self._model = model

    def begin(self, actor: RunAtWork) -> None:
        """Ask the model."""
        request = summary_request(actor.run, actor.specs[actor.run.spec], self.command.messages)
        work = self.effects.executor.call_model(self._model, request, lambda _text: None)
        self.spawn(work, self.node.limits.model_call_seconds)

    def ended(self, ended: Ended) -> None:
        """Report the summary, or that there is none."""
        if ended.end is End.CANCELLED:
            self.finished()
            return
        now = self.node.clock.now()
        text = getattr(ended.value, "text", None) if ended.end is End.RETURNED else None
        if isinstance(text, str):
            usage = usable_usage(getattr(ended.value, "usage", None))
            room = self.node.limits.event_bytes // 4
            self.report(
                ContextCompacted(
                    id=f"{self.key}.compacted",
                    time=now,
                    source="model",
                    summary=clean_text(text[:room]),
                    replaced=self.command.messages,
                    usage=usage,
                )
            )
            return
        problem = error_text(ended.error) if ended.error is not None else "no summary came in time"
        self.report(CompactionFailed(id=f"{self.key}.failed", time=now, source="model", message=clean_text(problem)))

"""The run actor: takes events one at a time through the step, appends, and only then lets effects start.

Rule 1: the run that everybody sees is the one that is stored. A step's result replaces it when its append is done.
Rule 2: events that wait together are stepped one after another and appended together; each is told its own fate.
Rule 3: a refused event changes nothing. A store that cannot write loses nothing: what came from outside is told so,
what an effect brought is kept and tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from geartrain import faults
from geartrain.actors import Cell, CellState, Reply
from geartrain.errors import (
    EventConflict,
    EventRefused,
    GeartrainError,
    InternalError,
    MailboxFull,
    RunNotFound,
    RunSetApart,
    RuntimeClosed,
)
from geartrain.machine import (
    ENDED,
    AgentSpec,
    CancelRequested,
    EvaluatePermissions,
    Event,
    HoldKind,
    PermissionsEvaluated,
    Refusal,
    Run,
    RunQuarantined,
    RunRecovered,
    Step,
    event_digest,
    rests,
    step,
)
from geartrain.mailbox import Lane
from geartrain.persistence import (
    CommitUnknown,
    DuplicateEvent,
    Entry,
    JournalConflict,
    OwnershipLost,
    StoreClosed,
    StoreFailed,
)
from geartrain.runtime._edge import clean_text
from geartrain.runtime._entry import Moved, entry_of, head_of, stored
from geartrain.runtime._judging import PendingVerdicts, ask_policy
from geartrain.runtime._log import log, plain_traceback
from geartrain.runtime._node import FoundSpecs, Node
from geartrain.tools import error_text

# Outside events remembered by a loaded run, so that a delivery repeated at once is known without asking the store.
_RECENT: Final = 256
_RETRY_SECONDS_MAX: Final = 5.0
_NOTHING: Final[Mapping[str, bytes]] = {}


class Delivery:
    """An event on its way into a run, and where its fate is told."""

    __slots__ = ("artifacts", "event", "inbox", "outside", "reply", "settled", "specs")

    def __init__(
        self,
        event: Event,
        *,
        outside: bool,
        reply: Reply[int] | None = None,
        artifacts: Mapping[str, bytes] = _NOTHING,
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


class RunActor:
    """One run at work in this process. Made when something is to be done, dropped when the run rests."""

    __slots__ = (
        "_consumed",
        "_recent",
        "_retries",
        "_tail_bytes",
        "appending",
        "arriving",
        "cell",
        "node",
        "pending_verdicts",
        "run",
        "specs",
    )

    def __init__(self, node: Node, run: Run, specs: dict[str, AgentSpec], tail_bytes: int = 0) -> None:
        self.node = node
        self.run = run
        self.specs = specs
        self.pending_verdicts: dict[str, PendingVerdicts] = {}
        self.arriving: set[str] = set()
        self._tail_bytes = tail_bytes
        self._recent: dict[str, tuple[str, int]] = {}
        self._consumed: tuple[int, ...] = ()
        self._retries = 0
        # The append under way, or the last one.
        self.appending: asyncio.Future[int] | None = None
        self.cell: Cell[Delivery] = Cell(
            run.id,
            self,
            on_failure=self._failed,
            capacity=node.limits.mailbox_capacity,
            reserved_capacity=4 * node.limits.calls_per_reply + 64,
            messages_per_turn=node.limits.messages_per_turn,
        )

    @property
    def at_rest(self) -> bool:
        """Whether the run waits for somebody, or is over, or was never stored."""
        return self.run.seq == 0 or rests(self.run, self.specs[self.run.spec])

    def put_result(
        self,
        event: Event,
        artifacts: Mapping[str, bytes] = _NOTHING,
        *,
        specs: FoundSpecs | None = None,
        reply: Reply[int] | None = None,
        settled: Callable[[], object] | None = None,
    ) -> None:
        """Take what an effect of this run brought; *reply* and *settled* are told when it is stored, or is not."""
        self.cell.put_result(
            Delivery(event, outside=False, artifacts=artifacts, specs=specs, reply=reply, settled=settled)
        )

    def put_alarm(self, event: Event) -> None:
        """Take an event whose time has come; without room for it, the timer brings it again."""
        with contextlib.suppress(MailboxFull):
            self.cell.send_nowait(Delivery(event, outside=False), Lane.CONTROL)

    def ask_policy_again(self, command: EvaluatePermissions) -> None:
        """Ask the policy about calls whose verdicts another actor of this run had waited for."""
        event = self._verdicts(self.run, command)
        if event is not None:
            self.put_result(event)
        else:
            self.node.effects.reconcile(self)

    # The steps of one batch

    def receive(self, batch: Sequence[Delivery], /) -> asyncio.Future[Any] | None:
        """Step through *batch* and append what it gave; called by the cell.

        Returns the future of the append: the cell takes nothing more until it is done, and comes to `_failed` with
        this batch if it fails.
        """
        moves: list[Moved] = []
        taken: list[tuple[Delivery, int]] = []
        run = self.run
        for delivery in batch:
            run = self._take(delivery, run, moves, taken)
        if moves:
            self.appending = self._append(moves, taken)
            return self.appending
        for delivery, seq in taken:
            delivery.accept(seq)
        self._rest_soon()
        return None

    def _take(self, delivery: Delivery, run: Run, moves: list[Moved], taken: list[tuple[Delivery, int]]) -> Run:
        event = delivery.event
        if delivery.inbox is not None:
            self._consumed = (*self._consumed, delivery.inbox)
        digest = event_digest(event) if delivery.outside else ""
        if digest and (known := self._recent.get(event.id)) is not None:
            if known[0] == digest:
                taken.append((delivery, known[1]))
            else:
                delivery.fail(EventConflict(run.id, event.id))
            return run
        if delivery.specs:
            self.specs.update({name: spec for name, (spec, _) in delivery.specs.items()})
        result = step(run, event, self.specs)
        if isinstance(result, Refusal):
            self._refuse(delivery, result, run)
            return run
        if digest:
            self._remember(event.id, digest, result.run.seq)
        moves.append(Moved(event, result.run, digest, result.commands))
        taken.append((delivery, result.run.seq))
        return self._follow(result, moves)

    def _remember(self, event_id: str, digest: str, seq: int) -> None:
        self._recent[event_id] = (digest, seq)
        if len(self._recent) > _RECENT:
            del self._recent[next(iter(self._recent))]

    def _refuse(self, delivery: Delivery, refusal: Refusal, run: Run) -> None:
        event = delivery.event
        if delivery.reply is None or not delivery.outside:
            self.node.hub.live(
                run.id, "event_refused", {"type": refusal.event, "id": event.id, "reason": refusal.reason}
            )
        delivery.fail(
            EventRefused(run.id, refusal.event, str(refusal.state), refusal.reason, refusal.possible, run.seq)
        )

    def _follow(self, result: Step, moves: list[Moved]) -> Run:
        """Take the steps that follow at once: verdicts of a synchronous policy, and what must not go on."""
        while (event := self._next_inline(result)) is not None:
            following = step(result.run, event, self.specs)
            if isinstance(following, Refusal):
                raise InternalError(f"run {result.run.id!r}: {following.event} was refused: {following.reason}")
            moves.append(Moved(event, following.run, "", following.commands))
            result = following
        return result.run

    def _next_inline(self, result: Step) -> Event | None:
        run, node = result.run, self.node
        if run.state in ENDED:
            return None
        if run.ending is None and run.seq >= node.limits.events_per_run:
            reason = f"the run has {run.seq} events, the most that are kept"
            return CancelRequested(
                id=f"limit.{run.seq}", time=run.updated_at, reason=reason, code="cancelled_by_system"
            )
        if not result.commands or run.held_by(HoldKind.QUARANTINED):
            return None
        if run.agent not in node.agents and run.ending is None and not rests(run, self.specs[run.spec]):
            reason = f"agent {run.agent!r} is not registered here"
            return RunQuarantined(id=f"gone.{run.seq}", time=run.updated_at, reason=reason, code="agent_gone")
        command = next((c for c in result.commands if isinstance(c, EvaluatePermissions)), None)
        return self._verdicts(run, command) if command is not None else None

    def _verdicts(self, run: Run, command: EvaluatePermissions) -> Event | None:
        """Return the verdicts if the policy gives them at once; otherwise leave them to an effect."""
        if command.key in self.pending_verdicts:
            return None
        agent = self.node.agents[run.agent].agent
        recorded = {tool.name: tool for tool in self.specs[run.spec].tools}
        calls = tuple(call for call in run.calls if call.id in command.call_ids)
        pending = ask_policy(self.node.policy, agent, run, calls, recorded, limits=self.node.limits)
        if not pending.complete:
            self._drop_pending()  # of an evaluation that nobody wants any more
            self.pending_verdicts[command.key] = pending
            return None
        return PermissionsEvaluated(
            id=command.key,
            time=self.node.clock.now(),
            source="policy",
            verdicts=pending.verdicts(),
            evaluation=command.evaluation,
        )

    # The append and its outcome

    def _append(self, moves: list[Moved], taken: list[tuple[Delivery, int]]) -> asyncio.Future[int]:
        run, node = moves[-1].run, self.node
        specs: dict[str, bytes] = {}
        artifacts: dict[str, bytes] = {}
        for delivery, _ in taken:
            artifacts.update(delivery.artifacts)
            specs.update({digest: data for digest, (_, data) in (delivery.specs or {}).items()})
        entry = entry_of(
            moves,
            expected=self.run.seq,
            epoch=node.claim.epoch,
            spec=self.specs[run.spec],
            tail_bytes=self._tail_bytes,
            specs=specs,
            artifacts=artifacts,
            consumed=self._consumed,
            limits=node.limits,
        )
        faults.reach("run.append.before", run.id)
        future = node.journal.append(entry)
        # Before the cell's own: it goes on with the run that this has set.
        future.add_done_callback(partial(self._append_done, moves, taken, entry))
        return future

    def _append_done(
        self, moves: list[Moved], taken: list[tuple[Delivery, int]], entry: Entry, future: asyncio.Future[int]
    ) -> None:
        if future.cancelled() or future.exception() is not None:
            return  # the cell brings it to `_failed`
        faults.reach("run.append.after", self.run.id)
        before, self.run = self.run, moves[-1].run
        self._consumed, self._retries = (), 0
        checkpointed = entry.checkpoint is not None
        written = sum(len(event.body) for event in entry.events)
        self._tail_bytes = 0 if checkpointed else self._tail_bytes + written
        node = self.node
        if node.store_failed_since is not None:
            node.store_answers()
        if node.hub.active:
            node.hub.moved(before, moves, checkpointed=checkpointed)
        if before.seq < node.limits.events_per_run_warning <= self.run.seq:
            log.warning("run_is_long", run_id=self.run.id, events=self.run.seq, limit=node.limits.events_per_run)
        for delivery, seq in taken:
            delivery.accept(seq)
        if node.approvals.active:
            node.approvals.moved(before, self.run)
        node.tell_waiters(self.run, self.specs[self.run.spec])
        if not node.closing:
            node.effects.reconcile(self, moves[-1].commands)
        if entry.head.wake_at is not None:
            node.on_wake_at(entry.head.wake_at)
        self._rest_soon()

    # Failure

    def _failed(self, error: BaseException, batch: Sequence[Delivery]) -> None:
        """Deal with a batch that could not be stepped through or appended; called by the cell, which then waits."""
        for delivery in batch:
            self._recent.pop(delivery.event.id, None)
        self._drop_pending()  # asked for a step that is not stored: the next one may ask about other calls
        if self.cell.state is CellState.STOPPED or isinstance(error, StoreClosed):
            for delivery in batch:
                delivery.fail(RuntimeClosed(f"storing an event of run {self.run.id!r}"))
            return
        match error:
            case DuplicateEvent():
                self._go_on_with(self._without_duplicate(batch, error))
            case StoreFailed():
                self.node.store_fails(error)
                self._try_later(self._kept(batch, error))
            case CommitUnknown():
                self.node.store_fails(error)
                self._leave(batch, error)
            case OwnershipLost():
                self.node.on_ownership_lost(error)
                self._leave(batch, error)
            case JournalConflict():
                self._leave(batch, error)
            case _:
                self._quarantine(error, batch)

    def _without_duplicate(self, batch: Sequence[Delivery], error: DuplicateEvent) -> list[Delivery]:
        left = []
        for delivery in batch:
            if not delivery.outside or delivery.event.id != error.event_id:
                left.append(delivery)
            elif event_digest(delivery.event) == error.stored_digest:
                delivery.accept(error.stored_seq)
            else:
                delivery.fail(EventConflict(self.run.id, error.event_id))
        return left

    def _kept(self, batch: Sequence[Delivery], error: Exception) -> list[Delivery]:
        """Fail what came from outside; keep what effects brought, which nobody else has."""
        for delivery in batch:
            if delivery.outside:
                delivery.fail(error)
        return [delivery for delivery in batch if not delivery.outside]

    def _go_on_with(self, deliveries: Sequence[Delivery]) -> None:
        if self.cell.state is CellState.STOPPED:  # the runtime closed meanwhile
            return
        self.cell.restart(self)
        for delivery in deliveries:
            self.cell.put_result(delivery)
        self._rest_soon()

    def _try_later(self, deliveries: Sequence[Delivery]) -> None:
        self._retries += 1
        delay = min(0.05 * 2**self._retries, _RETRY_SECONDS_MAX) if deliveries else 0.0
        asyncio.get_running_loop().call_later(delay, self._go_on_with, deliveries)

    def _leave(self, batch: Sequence[Delivery], error: GeartrainError) -> None:
        """Let go of the run: what is stored is not what this actor holds; it is read again when needed."""
        log.warning("run_dropped", run_id=self.run.id, error=str(error))
        for delivery in batch:
            delivery.fail(error)
        self.drop(error)
        if not self.node.closing:
            self.node.on_dropped(self.run.id)

    def _quarantine(self, error: BaseException, batch: Sequence[Delivery]) -> None:
        """Set the event aside that could not be stepped through or stored, and quarantine the run."""
        log.error("run_actor_failed", run_id=self.run.id, traceback=plain_traceback(error))
        aside = self._culprit(batch)
        aside.fail(
            InternalError(
                f"run {self.run.id!r}: {type(aside.event).__name__} could not be handled: {error_text(error)}"
            )
        )
        reason = clean_text(error_text(error))
        if isinstance(aside.event, RunQuarantined) or self.run.seq == 0:
            self._set_apart(batch, reason)
            return
        quarantine = RunQuarantined(
            id=f"quarantine.{self.run.seq}",
            time=self.node.clock.now(),
            reason=reason,
            aside=type(aside.event).__name__,
        )
        others = [delivery for delivery in batch if delivery is not aside]
        self._go_on_with([*others, Delivery(quarantine, outside=False)])

    def _culprit(self, batch: Sequence[Delivery]) -> Delivery:
        """Return the first delivery of *batch* that cannot be stepped through or stored: by trying, which is pure."""
        run = self.run
        for delivery in batch:
            try:
                result = step(run, delivery.event, self.specs)
                if not isinstance(result, Refusal):
                    run = result.run
                    stored(Moved(delivery.event, run, "", ()))
                    head_of(run, self.specs[run.spec])
            except Exception:  # noqa: BLE001 - whatever it was, it was logged when it happened first
                return delivery
        return batch[0]

    def _rest_soon(self) -> None:
        if self.at_rest:
            asyncio.get_running_loop().call_soon(self.rest_if_idle)

    def rest_if_idle(self) -> None:
        """Leave memory if nothing is to be done: no effect, no message, no append under way."""
        if self.at_rest and self.cell.idle and not self.node.effects.of(self.run.id):
            self.drop(None)
            if not self.run.seq:  # its start was not stored: whoever waits for it already waits for nothing
                self.node.fail_waiters(self.run.id, RunNotFound(self.run.id))

    def _drop_pending(self) -> None:
        for pending in self.pending_verdicts.values():
            pending.drop()
        self.pending_verdicts.clear()

    def drop(self, error: GeartrainError | None) -> None:
        """Take the actor out of memory; what still waits in its mailbox gets *error*."""
        node = self.node
        if node.actors.get(self.run.id) is self:
            del node.actors[self.run.id]
        node.effects.forget(self.run.id)
        self._drop_pending()
        for delivery in self.cell.stop():
            delivery.fail(error or InternalError(f"run {self.run.id!r}: dropped with messages waiting"))

    def _set_apart(self, batch: Sequence[Delivery], reason: str) -> None:
        """Give up on the run in this process: whoever waits for it, now or later, is told why."""
        apart = RunSetApart(self.run.id, reason)
        for delivery in batch:
            delivery.fail(apart)
        self.drop(apart)
        self.node.set_apart(self.run.id, apart, lasting=bool(self.run.seq))


def recovered(run: Run, time: float) -> RunRecovered:
    """Return the first event of a run that another process left in the middle."""
    attempt = run.recoveries + 1
    return RunRecovered(id=f"recovery.{attempt}", time=time, attempt=attempt)

"""The run actor: takes events one at a time through the step, appends, and only then lets effects start.

Rule 1: the run that everybody sees is the one that is stored. A step's result replaces it when its append is done.
Rule 2: events that wait together are stepped one after another and appended together; each is told its own fate.
Rule 3: a refused event changes nothing. A store that cannot write loses nothing: what came from outside is told so,
what an effect brought is kept and tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    Step,
    event_digest,
    rests,
    step,
    sub_agents_at_work,
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
from geartrain.runtime._circuit import is_raised, store_raised
from geartrain.runtime._delivery import NOTHING, Delivery, kept
from geartrain.runtime._entry import Moved, Revived, entry_of, nothing_new
from geartrain.runtime._judging import PendingVerdicts, ask_policy
from geartrain.runtime._linger import Linger
from geartrain.runtime._log import log, log_stuck, log_verdicts
from geartrain.runtime._node import FoundSpecs, Node
from geartrain.runtime._outgoing import outgoing, sent_by, turned_away, unable_sub_agent
from geartrain.runtime._suspects import interrupted, verdict
from geartrain.supervisor import Backoff

# Outside events remembered by a loaded run, so that a delivery repeated at once is known without asking the store.
_RECENT: Final = 256
_RETRY: Final = Backoff(initial_seconds=0.1, factor=2.0, max_seconds=5.0, jitter=0.0)
# So often the store may raise what nobody has thought of before it counts against the run, if it writes for others.
_RAISES: Final = 3


class RunActor:
    """One run at work in this process. Made when something is to be done, dropped when the run rests."""

    __slots__ = (
        "_linger",
        "_recent",
        "_retries",
        "_tail_bytes",
        "_writes_before",
        "appending",
        "arriving",
        "cell",
        "inbox_mark",
        "inbox_more",
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
        # The newest of what other runs have sent that was put into the mailbox, and whether more waits in the store.
        self.inbox_mark = 0
        self.inbox_more = False
        self._retries = 0
        self._writes_before = 0
        self._linger: Linger | None = None
        # The append under way, or the last one.
        self.appending: asyncio.Future[int] | None = None
        self.cell: Cell[Delivery] = Cell(
            run.id,
            self,
            on_failure=self.failed,
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
        artifacts: Mapping[str, bytes] = NOTHING,
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
        """Step through *batch* and append what it gave; called by the cell, or while that is broken by a supervisor.

        Returns the future of the append: the cell takes nothing more until it is done, and comes to `failed` with
        this batch if it fails.
        """
        moves: list[Moved] = []
        taken: list[tuple[Delivery, int]] = []
        run = self.run
        for delivery in batch:
            run = self._take(delivery, run, moves, taken)
        brought = {delivery.inbox: delivery.event for delivery in batch if delivery.inbox is not None}
        if moves:
            self.appending = self._append(moves, taken, brought)
            return self.appending
        if brought and run.seq:
            self.appending = self._let_go(taken, brought)
            return self.appending
        for delivery, seq in taken:
            delivery.accept(seq)
        self._rest_soon()
        return None

    def _take(self, delivery: Delivery, run: Run, moves: list[Moved], taken: list[tuple[Delivery, int]]) -> Run:
        event = delivery.event
        digest = event_digest(event) if delivery.outside else ""
        if delivery.inbox is not None:  # it says when it was sent; until now nobody may have been here to take it
            event = self.node.dated_now(event)
        event = self.node.dated(event, run)
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
        return self._follow(run, result, moves)

    def _remember(self, event_id: str, digest: str, seq: int) -> None:
        self._recent[event_id] = (digest, seq)
        if len(self._recent) > _RECENT:
            del self._recent[next(iter(self._recent))]

    def _refuse(self, delivery: Delivery, refusal: Refusal, run: Run) -> None:
        event = delivery.event
        self.node.refusals.note(run, event, refusal)
        if delivery.reply is None or not delivery.outside:
            self.node.hub.live(
                run.id, "event_refused", {"type": refusal.event, "id": event.id, "reason": refusal.reason}
            )
        delivery.fail(
            EventRefused(run.id, refusal.event, str(refusal.state), refusal.reason, refusal.possible, run.seq)
        )

    def _follow(self, before: Run, result: Step, moves: list[Moved]) -> Run:
        """Take the steps that follow at once: verdicts of a synchronous policy, and what must not go on."""
        agents = self.node.agents
        while event := unable_sub_agent(before, result.run, agents) or self._next_inline(result, moves[-1].event):
            event = self.node.dated(event, result.run)
            following = step(result.run, event, self.specs)
            if isinstance(following, Refusal):
                raise InternalError(f"run {result.run.id!r}: {following.event} was refused: {following.reason}")
            moves.append(Moved(event, following.run, "", following.commands))
            result = following
        return result.run

    def _next_inline(self, result: Step, last: Event) -> Event | None:
        run, node = result.run, self.node
        if run.state in ENDED:
            return None
        if node.suspects.waits(run.id):
            # Nothing of a stranger's may run before its turn, and the policy is one.
            return interrupted(run, last, self.specs[run.spec])
        if run.ending is None and run.seq >= node.limits.events_per_run:
            reason = f"the run has {run.seq} events, the most that are kept"
            return CancelRequested(
                id=f"limit.{run.seq}", time=run.updated_at, reason=reason, code="cancelled_by_system"
            )
        if not result.commands or run.held_by(HoldKind.QUARANTINED):
            return None
        if (event := self._set_apart(run)) is not None:
            return event
        command = next((c for c in result.commands if isinstance(c, EvaluatePermissions)), None)
        return self._verdicts(run, command) if command is not None else None

    def _set_apart(self, run: Run) -> Event | None:
        """Return what sets a run apart that must not go on here."""
        spec = self.specs[run.spec]
        if run.crashes_alone and (apart := verdict(run, spec, self.node.limits)) is not None:
            return apart
        if run.agent not in self.node.agents and run.ending is None and not rests(run, spec):
            reason = f"agent {run.agent!r} is not registered here"
            return RunQuarantined(id=f"gone.{run.seq}", time=run.updated_at, reason=reason, code="agent_gone")
        return None

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
            verdicts=log_verdicts(run.id, pending.verdicts()),
            evaluation=command.evaluation,
        )

    # The append and its outcome

    def _append(
        self, moves: list[Moved], taken: list[tuple[Delivery, int]], brought: Mapping[int, Event]
    ) -> asyncio.Future[int]:
        run, node = moves[-1].run, self.node
        sent = sent_by(self.run, moves, node.agents, node.limits)
        specs: dict[str, bytes] = {digest: data for each in sent for digest, data in each.specs.items()}
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
            consumed=tuple(brought),
            outgoing=(*map(outgoing, sent), *turned_away(run, brought.values())),
            limits=node.limits,
        )
        faults.reach("run.append.before", run.id)
        try:
            future = node.journal.append(entry)
        except GeartrainError:
            raise
        except Exception as error:  # a fault of the store's own code, or of what is to be stored
            raise store_raised(run.id, error) from error
        # Before the cell's own: it goes on with the run that this has set.
        future.add_done_callback(partial(self._append_done, moves, taken, entry))
        return future

    def _append_done(
        self, moves: list[Moved], taken: list[tuple[Delivery, int]], entry: Entry, future: asyncio.Future[int]
    ) -> None:
        if future.cancelled() or future.exception() is not None:
            return  # the cell brings it to `failed`
        faults.reach("run.append.after", self.run.id)
        before, self.run = self.run, moves[-1].run
        self._retries = 0
        checkpointed = entry.checkpoint is not None
        written = sum(len(event.body) for event in entry.events)
        self._tail_bytes = 0 if checkpointed else self._tail_bytes + written
        node = self.node
        node.circuit.answers()
        for delivery, seq in taken:
            delivery.accept(seq)
        try:
            self._tell(before, moves, entry.head.wake_at, checkpointed=checkpointed)
        except Exception as error:  # noqa: BLE001 - a fault of ours or of a hook: the step is stored, and the run goes on
            node.on_stumbled(self, error)
            node.tell_waiters(self.run, self.specs[self.run.spec])
        if not node.closing:
            node.effects.reconcile(self, moves[-1].commands)
        node.kin.moved(self.run, resting=self.at_rest, sent=entry.outgoing, more=self.inbox_more and entry.consumed)
        self._rest_soon()

    def _let_go(self, taken: list[tuple[Delivery, int]], brought: Mapping[int, Event]) -> asyncio.Future[int]:
        """Take what was sent and moves nothing out of the store: all of it is known or was refused."""
        answers = tuple(turned_away(self.run, brought.values()))
        entry = nothing_new(self.run, self.specs[self.run.spec], self.node.claim.epoch, tuple(brought), answers)
        future = self.node.journal.append(entry)
        future.add_done_callback(partial(self._gone, taken, entry))
        return future

    def _gone(self, taken: list[tuple[Delivery, int]], entry: Entry, future: asyncio.Future[int]) -> None:
        if future.cancelled() or future.exception() is not None:
            return
        self._retries = 0
        self.node.circuit.answers()
        for delivery, seq in taken:
            delivery.accept(seq)
        self.node.kin.moved(self.run, resting=self.at_rest, sent=entry.outgoing, more=self.inbox_more)
        self._rest_soon()

    def _tell(self, before: Run, moves: list[Moved], wake_at: float | None, *, checkpointed: bool) -> None:
        """Tell all who want to know of what is stored now."""
        node, run = self.node, self.run
        if node.hub.active:
            node.hub.moved(before, moves, checkpointed=checkpointed)
        if before.seq < node.limits.events_per_run_warning <= run.seq:
            log.warning("run_is_long", run_id=run.id, events=run.seq, limit=node.limits.events_per_run)
        if run.acted is not before.acted:
            log_stuck(run)
        if node.approvals.active:
            node.approvals.moved(before, run)
        spec = self.specs[run.spec]
        node.tell_waiters(run, spec)
        node.suspects.moved(run, spec)
        node.on_wake_at(wake_at, run.id)

    def renew(self, revived: Revived) -> None:
        """Be where the store is: nothing stays of what was not stored."""
        self.run = revived.run
        self.specs = revived.specs
        self._tail_bytes = revived.tail_bytes
        self._recent.clear()
        self._drop_pending()

    def unstored(self, batch: Iterable[Delivery]) -> None:
        """Forget what was noted of a batch as of one that is stored: it is not, or not by this."""
        for delivery in batch:
            self._recent.pop(delivery.event.id, None)
        self._drop_pending()  # asked for a step that is not stored: the next one may ask about other calls

    # Failure

    def failed(self, error: BaseException, batch: Sequence[Delivery]) -> None:
        """Deal with a batch that could not be stepped through or appended; called by the cell, which then waits."""
        self.unstored(batch)
        if self.cell.state is CellState.STOPPED or isinstance(error, StoreClosed):
            for delivery in batch:
                delivery.fail(RuntimeClosed(f"storing an event of run {self.run.id!r}"))
            return
        if not isinstance(error, GeartrainError) and self.appending is not None and _raised(self.appending) is error:
            error = store_raised(self.run.id, error)
        match error:
            case DuplicateEvent():
                self.go_on_with(self._without_duplicate(batch, error))
            case StoreFailed() if is_raised(error) and self._alone_in_failing():
                self.node.on_crash(self, error, batch)
            case StoreFailed():
                self.node.circuit.fails(error)
                self._try_later(kept(batch, error))
            case CommitUnknown():
                self.node.circuit.fails(error)
                self.leave(batch, error)
            case OwnershipLost():
                self.node.on_ownership_lost(error)
                self.leave(batch, error)
            case JournalConflict():
                self.leave(batch, error)
            case _:
                self.node.on_crash(self, error, batch)

    def _without_duplicate(self, batch: Sequence[Delivery], error: DuplicateEvent) -> list[Delivery]:
        left = []
        for delivery in batch:
            if not delivery.outside or delivery.event.id != error.event_id:
                left.append(delivery)
            else:
                self.tell_duplicate(delivery, error)
        return left

    def tell_duplicate(self, delivery: Delivery, error: DuplicateEvent) -> None:
        """Acknowledge what is stored already, or refuse another event under its id."""
        if event_digest(delivery.event) == error.stored_digest:
            delivery.accept(error.stored_seq)
        else:
            delivery.fail(EventConflict(self.run.id, error.event_id))

    def go_on_with(self, deliveries: Sequence[Delivery]) -> None:
        """Go on after a failure, with what was in hand and all that has come meanwhile."""
        if self.cell.state is CellState.STOPPED:  # the runtime closed meanwhile
            return
        self.cell.restart(self)
        for delivery in deliveries:
            self.cell.put_result(delivery)
        self._rest_soon()

    def _alone_in_failing(self) -> bool:
        """Whether what the store raises is about this run: it has written for others meanwhile, again and again."""
        writes = self.node.circuit.writes
        if not self._retries:
            self._writes_before = writes
        return self._retries >= _RAISES and writes > self._writes_before

    def _try_later(self, deliveries: Sequence[Delivery]) -> None:
        self._retries += 1
        delay = _RETRY.wait_seconds(self._retries, 0.0) if deliveries else 0.0
        asyncio.get_running_loop().call_later(delay, self.go_on_with, deliveries)

    def leave(self, batch: Iterable[Delivery], error: GeartrainError) -> None:
        """Let go of the run: what is stored is not what this actor holds; it is read again when needed."""
        log.warning("run_dropped", run_id=self.run.id, error=str(error))
        for delivery in batch:
            delivery.fail(error)
        self.drop(error)
        if not self.node.closing:
            self.node.on_dropped(self.run.id)

    def _rest_soon(self) -> None:
        if not self.at_rest:
            return
        if sub_agents_at_work(self.run):
            self._linger = self._linger or Linger(self.rest_if_idle)
            self._linger.renew()
        else:
            self._linger = None
            asyncio.get_running_loop().call_soon(self.rest_if_idle)

    def rest_if_idle(self) -> None:
        """Leave memory if nothing is to be done: no effect, no message, no append under way."""
        here = self.node.actors.get(self.run.id) is self
        lingers = self._linger is not None and not self._linger.over
        if here and not lingers and self.at_rest and self.cell.idle and not self.node.effects.of(self.run.id):
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
            node.suspects.gone(self.run.id)
            node.left.set()
            node.kin.left(self.run)
        node.effects.forget(self.run.id)
        self._drop_pending()
        for delivery in self.cell.stop():
            delivery.fail(error or InternalError(f"run {self.run.id!r}: dropped with messages waiting"))


def _raised(future: asyncio.Future[int]) -> BaseException | None:
    return future.exception() if future.done() and not future.cancelled() else None

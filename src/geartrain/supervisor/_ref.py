"""How a tree of actors is started and reached."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from dataclasses import dataclass
from typing import Final, cast

from geartrain.actors import Actor, ActorGroup, ActorLife, ActorRef, ActorState
from geartrain.errors import InvalidValue
from geartrain.supervisor._actor import SupervisorActor
from geartrain.supervisor._child import Child, ChildState, ChildStatistics
from geartrain.supervisor._engine import SIGNALS, Engine
from geartrain.supervisor._errors import ChildNotFound
from geartrain.supervisor._spec import ChildSpec, Supervisor
from geartrain.supervisor._strategy import Strategy
from geartrain.supervisor._tree import OnCrash, Tree, to_the_loop

_NUMBERS: Final = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorStatistics:
    """A supervisor at one moment: OTP's `count_children`, and its restarts.

    `restarts` are those of all its present children; `restarts_in_window` are those that count against the limit.
    """

    name: str
    state: ActorState
    strategy: Strategy
    children: int
    up: int
    supervisors: int
    restarts: int
    restarts_in_window: int


class SupervisorRef:
    """Where a supervisor is reached; stays good through its restarts. For the event loop of its group."""

    __slots__ = ("_life",)

    def __init__(self, life: ActorLife) -> None:
        self._life = life

    def __repr__(self) -> str:
        return f"<SupervisorRef {self.name!r} {self._life.state}>"

    @property
    def name(self) -> str:
        """Its name; of one within another: the path to it."""
        return self._life.name

    def child(self, path: str) -> ActorRef:
        """Return the reference of an actor in the tree, which stays good through all restarts.

        Args:
            path: The child's name; of one further down: the names on the way to it, with "/" between.

        Raises:
            ChildNotFound: There is none, it is down, or it is a supervisor.
        """
        child = self._at(path)
        if child.is_supervisor:
            raise ChildNotFound(self.name, path, "it is a supervisor, which subtree() reaches")
        if child.life is None:
            raise ChildNotFound(self.name, path, _absent(child))
        return child.life.ref

    def subtree(self, path: str) -> SupervisorRef:
        """Return the reference of a supervisor in the tree; *path* as for `child`.

        Raises:
            ChildNotFound: There is none, it is down, or it is no supervisor.
        """
        child = self._at(path)
        if not child.is_supervisor:
            raise ChildNotFound(self.name, path, "it is no supervisor, child() reaches it")
        if child.life is None:
            raise ChildNotFound(self.name, path, _absent(child))
        return SupervisorRef(child.life)

    async def start_child(self, spec: ChildSpec) -> None:
        """Add a child, the last in order, and wait until it is up; `child` and `subtree` then return its reference.

        If its first start fails, it is not kept, and that counts as no restart. If the call is cancelled, the child
        stays. A restart of the supervisor itself forgets children that were added, as OTP does.

        Raises:
            SpecRefused: A child has the name already.
            ActorFailed: Its factory or its `started` raised; `__cause__` is what.
            ActorStopped: The supervisor is being stopped or restarted.
        """
        await self._engine.add(spec).wait_up()

    async def stop_child(self, name: str) -> None:
        """Stop a child, within its limit, and have it stay down; what waits in its mailbox becomes dead letters.

        Its siblings are left alone. It can be started again by `restart_child`, with a new reference; called while it
        ends, that has it come back, with all that waits. A child that waits here for its own end is cut short when half
        of its limit is over.

        Raises:
            ChildNotFound: There is none.
        """
        child = self._engine.child(name)
        self._engine.stop_child(child)
        await child.wait_down()

    async def restart_child(self, name: str) -> None:
        """Start a child that is down, or stop one that is up and start it again; wait until it is up.

        One that was up keeps its reference and the messages that wait. Its siblings are left alone, there is no
        back-off, and it does not count as a restart. If it fails, its restart kind decides as always.

        Raises:
            ChildNotFound: There is none.
            ActorFailed: It failed to start; `__cause__` is why.
            ActorStopped: The supervisor is being stopped or restarted.
        """
        child = self._engine.child(name)
        seen = child.failures
        if self._engine.restart_child(child):
            await child.wait_ended()
        await child.wait_up(seen)

    def delete_child(self, name: str) -> None:
        """Forget a child that is down.

        Raises:
            ChildNotFound: There is none.
            ChildNotDown: It is not down. Nothing was changed.
        """
        self._engine.delete_child(self._engine.child(name))

    def stop(self) -> None:
        """Have all children stop, right to left, each within its limit, and then the supervisor.

        A supervisor within another is restarted or not, as its restart kind says; its own supervisor's `stop_child`
        lets it stay down.
        """
        self._life.leave()

    async def wait_started(self) -> None:
        """Wait until all children are up.

        Raises:
            ActorFailed: A child failed in its first start, so all were stopped; `__cause__` says which.
            ActorStopped: It was stopped.
        """
        await self._life.wait_started()

    async def wait_stopped(self) -> None:
        """Wait until all children and the supervisor have stopped, for whatever reason."""
        await self._life.wait_stopped()

    def children(self) -> tuple[ChildStatistics, ...]:
        """Return how each child is doing, in the order in which they start: OTP's `which_children`."""
        return tuple(child.statistics() for child in self._engine.children.values())

    def statistics(self) -> SupervisorStatistics:
        """Return how the supervisor is doing."""
        engine = self._engine
        children = list(engine.children.values())
        return SupervisorStatistics(
            name=self.name,
            state=self._life.state,
            strategy=Strategy(engine.spec.strategy),
            children=len(children),
            up=sum(child.state is ChildState.UP for child in children),
            supervisors=sum(child.is_supervisor for child in children),
            restarts=sum(child.restarts for child in children),
            restarts_in_window=engine.restarts_counted,
        )

    @property
    def _engine(self) -> Engine:
        self._life.check_loop()
        return cast("SupervisorActor", self._life.actor).engine

    def _at(self, path: str) -> Child:
        first, _, rest = path.partition("/")
        child = self._engine.child(first)
        return self.subtree(first)._at(rest) if rest else child  # noqa: SLF001 - another of its own kind


def _absent(child: Child) -> str:
    """Return why *child* has no reference."""
    if child.state is ChildState.WAITING:
        return "it has not begun to start; await wait_started()"
    return "it is down, until somebody starts it (restart_child)"


def supervise(
    group: ActorGroup,
    supervisor: Supervisor,
    *,
    name: str | None = None,
    on_crash: OnCrash | None = None,
    seed: int | None = None,
) -> SupervisorRef:
    """Start a tree of actors in *group*, which stops it when it is left.

    ```python
    async with ActorGroup() as actors:
        tree = supervise(actors, Supervisor([ChildSpec("cache", Cache), ChildSpec("web", Web)], "rest_for_one"))
        await tree.wait_started()
        tree.child("cache").send_nowait("warm up")
    ```

    If the tree fails as a whole, it has stopped, and the group's `on_failure` is told.

    Args:
        group: Where its actors live.
        supervisor: What it is to be.
        name: No living actor of the group may have it; None makes one.
        on_crash: Told of each crash, on the event loop, soon after; None tells the loop's exception handler. What it
            raises goes there too.
        seed: For the jitter of back-offs; None takes it from the system.

    Raises:
        ActorElsewhere, GroupClosed, TooManyActors, InvalidValue: As `ActorGroup.spawn`; nothing was started.
    """
    if not isinstance(supervisor, Supervisor):
        raise InvalidValue("supervisor", "a Supervisor", supervisor)
    name = f"supervisor-{next(_NUMBERS)}" if name is None else name
    if not isinstance(name, str) or "/" in name:
        raise InvalidValue("name", "without '/', which is for the names of children", name)
    tree = Tree(
        group=group,
        loop=asyncio.get_running_loop(),
        chance=random.Random(seed),  # noqa: S311 - jitter, no secret
        on_crash=on_crash or to_the_loop,
        grace_seconds=group.limits.grace_seconds,
    )
    actor: Actor = SupervisorActor(supervisor, tree, name)
    return SupervisorRef(group.begin(actor, name=name, capacity=SIGNALS, grace_seconds=math.inf))

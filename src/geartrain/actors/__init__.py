"""One actor: a mailbox, a behaviour and a life.

`Cell` is what every actor is made of, those of runs too. `Actor`, `ActorRef` and `ActorGroup` are for actors of your
own, `ActorLife`, `ActorOwner` and `ActorSupervisor` for whoever restarts them.
"""

from geartrain.actors._actor import Actor, ActorFailure, ActorState, ActorStatistics, NotSpawned, Overflow
from geartrain.actors._cell import Behaviour, Cell, CellState, CellStatistics
from geartrain.actors._dead_letters import DeadLetter, DeadLetters, DeadLetterStatistics, WhyDead
from geartrain.actors._envelope import Signal
from geartrain.actors._errors import (
    ActorElsewhere,
    ActorExited,
    ActorFailed,
    ActorNotBroken,
    ActorStopped,
    AskedItself,
    GroupClosed,
    MessageNotHandled,
    TooManyActors,
    described,
)
from geartrain.actors._group import ActorGroup, ActorGroupStatistics
from geartrain.actors._life import ActorLife
from geartrain.actors._owner import ActorOwner, ActorSupervisor
from geartrain.actors._ref import ActorRef
from geartrain.actors._reply import Reply
from geartrain.actors._watch import Stopped

__all__ = [
    "Actor",
    "ActorElsewhere",
    "ActorExited",
    "ActorFailed",
    "ActorFailure",
    "ActorGroup",
    "ActorGroupStatistics",
    "ActorLife",
    "ActorNotBroken",
    "ActorOwner",
    "ActorRef",
    "ActorState",
    "ActorStatistics",
    "ActorStopped",
    "ActorSupervisor",
    "AskedItself",
    "Behaviour",
    "Cell",
    "CellState",
    "CellStatistics",
    "DeadLetter",
    "DeadLetterStatistics",
    "DeadLetters",
    "GroupClosed",
    "MessageNotHandled",
    "NotSpawned",
    "Overflow",
    "Reply",
    "Signal",
    "Stopped",
    "TooManyActors",
    "WhyDead",
    "described",
]

"""Which message is served first.

| lane     | carries                                            | room                          |
|----------|----------------------------------------------------|-------------------------------|
| CONTROL  | stop, cancel, budget, deadline                     | the mailbox's capacity        |
| APPROVAL | a person's decision                                | the mailbox's capacity        |
| STEERING | pause, resume, a person taking over                | the mailbox's capacity        |
| RESULTS  | what the owner's own effects brought back          | reserved, counted by the owner |
| WORK     | everything else                                    | the mailbox's capacity        |

Each lane has room of its own, so a flood of work never keeps a cancel out.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Lane(IntEnum):
    """Where a sender puts a message; lanes are served in this order, each first in, first out."""

    CONTROL = 0
    APPROVAL = 1
    STEERING = 2
    WORK = 4


# Between STEERING and WORK; not a member, since no sender may choose it.
RESULTS: Final = 3
LANES: Final = 5

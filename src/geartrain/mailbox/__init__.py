"""A bounded queue with lanes between many senders and one actor."""

from __future__ import annotations

from geartrain.mailbox._lanes import Lane
from geartrain.mailbox._mailbox import Mailbox, MailboxClosed, MailboxStatistics, ReservedRoomExceeded

__all__ = ["Lane", "Mailbox", "MailboxClosed", "MailboxStatistics", "ReservedRoomExceeded"]

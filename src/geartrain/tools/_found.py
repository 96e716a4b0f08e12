"""What a tool's `verify` has found about a write whose result was not seen."""

from __future__ import annotations

from typing import Any

import msgspec


class Done(msgspec.Struct, frozen=True):
    """The write was done. `result` is what the tool would have returned."""

    result: Any = None


class NotDone(msgspec.Struct, frozen=True):
    """The write was not done and will not be done by the call in doubt.

    A runtime asks once no attempt of the call is at work in it any more; what an attempt has set going elsewhere is for
    `verify` to know.
    """


class Unknown(msgspec.Struct, frozen=True):
    """It cannot be told; a person has to."""

    reason: str = ""

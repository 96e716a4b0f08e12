"""Ids: derived ones are pure functions of what they name, minted ones come from a port.

A derived id makes repetition harmless: the effect of call `t3.c2`, attempt 1, is answered by an event whose id
follows from that key, so the same answer posted twice is one event.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Protocol


class Ids(Protocol):
    """Where new ids come from."""

    def mint(self, prefix: str) -> str:
        """Return an id that was never returned before, beginning with *prefix* and a hyphen."""
        ...


class RandomIds:
    """Ids from the operating system's randomness: 60 bits, written in 12 letters and digits."""

    __slots__ = ()

    _ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no letter reads like a digit

    def mint(self, prefix: str) -> str:
        """Return *prefix*, a hyphen and twelve random characters."""
        number = secrets.randbits(60)
        return prefix + "-" + "".join(self._ALPHABET[(number >> shift) & 31] for shift in range(55, -1, -5))


class CountedIds:
    """Ids counted from 1: for tests and simulations, where the same run must give the same ids."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = 0

    def mint(self, prefix: str) -> str:
        """Return *prefix*, a hyphen and the next number."""
        self._last += 1
        return f"{prefix}-{self._last}"


def digest(data: bytes) -> str:
    """Return the first 128 bits of the SHA-256 of *data*, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()[:32]


def derived_run_id(*parts: str) -> str:
    """Return the run id that follows from *parts*."""
    return "r-" + digest("\x1f".join(parts).encode("utf-8", "surrogatepass"))[:16]


def sub_agent_run_id(run_id: str, call: str) -> str:
    """Return the id of the run that *call* of *run_id* starts: started twice, it is one run."""
    return derived_run_id("call", run_id, call)


def call_id(turn: int, position: int) -> str:
    """Return the id of the call at *position* (from 1) of the reply of *turn* (from 1): `t3.c2`."""
    return f"t{turn}.c{position}"


def effect_key(subject: str, attempt: int) -> str:
    """Return the key of an effect: what it is about (`t3.c2`, `t3.model`) and which attempt (from 1)."""
    return f"{subject}.a{attempt}"

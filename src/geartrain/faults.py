"""Named places where a test may make the world fail. Off unless a hook is installed.

A suite that injects faults asks for them by name and reports which names were reached; a name that is never
reached fails it. In production `reach` is one comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

FAULT_POINTS: Final[frozenset[str]] = frozenset(
    {
        "store.open",
        "store.commit.before",
        "store.commit.after",
        "store.read",
        "run.append.before",
        "run.append.after",
        "effect.start",
        "effect.end",
        "tool.write.before",
        "tool.write.after",
        "run.recovered",
    }
)

Hook = Callable[[str, str], None]
_hook: Hook | None = None


def install(hook: Hook | None) -> None:
    """Call *hook* with the name of each fault point reached and its subject; None takes the hook away.

    What the hook raises is raised at the fault point.
    """
    global _hook  # noqa: PLW0603 - one process, one hook: a parameter through every layer would cost all callers
    _hook = hook


def reach(name: str, subject: str = "") -> None:
    """Say that the fault point *name* is reached for *subject* (a run or effect)."""
    if _hook is not None:
        assert name in FAULT_POINTS, f"{name!r} is no fault point"
        _hook(name, subject)

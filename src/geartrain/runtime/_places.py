"""Places for sub-agents' runs to work in: so many of a tree, so many on a node.

Rule 1: starts for which there is no place, in their tree or on this node, wait in order; trees that are full are passed
over.
Rule 2: a run that waits for others rests and has no place, so that trees of any depth go on. One that goes on after a
rest, or in another process, is never kept out.
"""

from __future__ import annotations

from collections import Counter

from geartrain.limits import Limits


class Places:
    """Who of the sub-agents' runs is at work here, and who waits for a place."""

    __slots__ = ("_at_once", "_by_root", "_per_tree", "_roots", "_waiting")

    def __init__(self, limits: Limits) -> None:
        self._at_once = limits.sub_agents_at_once_per_node
        self._per_tree = limits.sub_agents_at_once_per_tree
        self._roots: dict[str, str] = {}
        self._by_root: Counter[str] = Counter()
        self._waiting: dict[str, str] = {}

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return len(self._waiting)

    def take(self, run_id: str, root: str) -> None:
        """Note that a run is at work."""
        self._waiting.pop(run_id, None)
        if run_id not in self._roots:
            self._roots[run_id] = root
            self._by_root[root] += 1

    def take_if_free(self, run_id: str, root: str) -> bool:
        """Take a place, or wait for one; return whether there was one."""
        free = len(self._roots) < self._at_once and self._by_root[root] < self._per_tree
        if free or run_id in self._roots:
            self.take(run_id, root)
            return True
        self._waiting[run_id] = root
        return False

    def leave(self, run_id: str) -> list[str]:
        """Note that a run is no more at work, and return who may start in its place."""
        self._waiting.pop(run_id, None)
        root = self._roots.pop(run_id, None)
        if root is None:
            return []
        self._by_root[root] -= 1
        if not self._by_root[root]:
            del self._by_root[root]
        return self._next()

    def _next(self) -> list[str]:
        """Return who may start now, in the order in which they came. Told twice, they still start once."""
        room = self._at_once - len(self._roots)
        taken: Counter[str] = Counter()
        following: list[str] = []
        for run_id, root in self._waiting.items():
            if len(following) >= room:
                break
            if self._by_root[root] + taken[root] < self._per_tree:
                taken[root] += 1
                following.append(run_id)
        return following

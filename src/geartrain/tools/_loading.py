"""Whether this process is a worker, and whether it is importing a tool's module just now.

A worker imports the module that a tool is in, which may be the program itself. A program that does not guard what it
does with `if __name__ == "__main__"` would then start once more inside of its own worker.
"""

from __future__ import annotations

in_a_worker = False
loading = False


def loading_in_a_worker() -> bool:
    """Whether a worker is importing a module that a tool lives in: nothing may be started by that."""
    return loading

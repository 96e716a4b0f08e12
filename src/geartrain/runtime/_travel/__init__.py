"""Runs outside of their store: written by rule, read back without one."""

__all__: list[str] = []  # a drawer of this room: its modules are taken out one by one

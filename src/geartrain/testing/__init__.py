"""What geartrain's own suite is built with, shipped so that yours can be."""

from __future__ import annotations

from geartrain.testing.virtual_time import VirtualDeadlock, VirtualLoop, settle, virtual_time_backend

__all__ = ["VirtualDeadlock", "VirtualLoop", "settle", "virtual_time_backend"]

"""The runtime's own log: structlog, loaded when something is first logged."""

from __future__ import annotations

from typing import Any


class _LazyLog:
    """Stands for `structlog.get_logger("geartrain")`, so that importing geartrain loads no logging library."""

    def __getattr__(self, name: str) -> Any:
        import structlog  # noqa: PLC0415 - loaded when first used

        return getattr(structlog.get_logger("geartrain"), name)


log = _LazyLog()

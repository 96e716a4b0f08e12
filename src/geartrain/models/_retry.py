"""When a model call is tried again, and after how long: pure rules, the runtime keeps the time."""

from __future__ import annotations

import math
from typing import Final

from geartrain.errors import ResourceError

BACKOFF_SECONDS_FIRST: Final = 1.0
BACKOFF_SECONDS_MAX: Final = 30.0

# A provider may wish for hours. The run's own limits decide whether to wait that long, not a header.
RETRY_AFTER_SECONDS_MAX: Final = 120.0

# After 2**5 seconds the limit holds, so larger powers need not be computed.
_DOUBLINGS_MAX: Final = 5


def backoff_seconds(attempt: int, *, retry_after: object = None, jitter: float) -> float:
    """Return how long to wait after *attempt* (1 is the first) has failed.

    Doubles from 1 s to at most 30 s; *jitter* takes up to half of it away. A provider's wish is obeyed instead, up to
    120 s: never earlier, and up to a tenth later, so that not everybody returns in the same moment.

    Args:
        attempt: The attempt that failed.
        retry_after: The provider's wish in seconds; nonsense (no number, negative, not finite) counts as no wish.
        jitter: A random number from 0 to 1, drawn by the caller.
    """
    jitter = min(max(jitter, 0.0), 1.0)
    if isinstance(retry_after, int | float) and not isinstance(retry_after, bool) and 0 <= retry_after < math.inf:
        return min(retry_after, RETRY_AFTER_SECONDS_MAX) * (1 + jitter / 10)
    doublings = min(max(attempt, 1) - 1, _DOUBLINGS_MAX)
    return min(BACKOFF_SECONDS_FIRST * 2.0**doublings, BACKOFF_SECONDS_MAX) * (1 - jitter / 2)


def is_retryable(error: BaseException) -> bool:
    """Say whether a later try of the same request may succeed: the world's fault, not the caller's or ours."""
    return isinstance(error, ResourceError | TimeoutError | ConnectionError)

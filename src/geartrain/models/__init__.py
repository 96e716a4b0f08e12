"""Model clients behind one protocol."""

from geartrain.models._protocol import (
    ContextTooLong,
    Emit,
    Model,
    ModelRejected,
    ModelReply,
    ModelRequest,
    ModelUnavailable,
)

__all__ = [
    "ContextTooLong",
    "Emit",
    "Model",
    "ModelRejected",
    "ModelReply",
    "ModelRequest",
    "ModelUnavailable",
]

"""Model clients behind one protocol."""

from geartrain.models._external import ExternalModel
from geartrain.models._offline import OfflineModel
from geartrain.models._protocol import (
    ContextTooLong,
    Emit,
    Model,
    ModelRejected,
    ModelReply,
    ModelRequest,
    ModelUnavailable,
)
from geartrain.models._registry import ModelNotFound, find_model
from geartrain.models._retry import backoff_seconds, is_retryable
from geartrain.models._scripted import Attempts, Delay, Entry, ScriptedModel, answer, call

__all__ = [
    "Attempts",
    "ContextTooLong",
    "Delay",
    "Emit",
    "Entry",
    "ExternalModel",
    "Model",
    "ModelNotFound",
    "ModelRejected",
    "ModelReply",
    "ModelRequest",
    "ModelUnavailable",
    "OfflineModel",
    "ScriptedModel",
    "answer",
    "backoff_seconds",
    "call",
    "find_model",
    "is_retryable",
]

"""Checkpoints of a run, through Orbax."""

from vinejax.checkpoint.store import (
    FORMAT_VERSION,
    CheckpointError,
    Checkpoints,
    CheckpointWarning,
    whole,
)

__all__ = ["FORMAT_VERSION", "CheckpointError", "CheckpointWarning", "Checkpoints", "whole"]

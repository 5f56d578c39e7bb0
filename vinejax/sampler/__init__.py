"""Sampling from arbitrary token prefixes: trunks whose KV is computed once, and the vines that grow from them."""

from vinejax.sampler.records import Counters, Jobs, Layout, Samples, Settings, Trunks, bucket
from vinejax.sampler.schedule import prefill, sample

__all__ = [
    "Counters",
    "Jobs",
    "Layout",
    "Samples",
    "Settings",
    "Trunks",
    "bucket",
    "prefill",
    "sample",
]

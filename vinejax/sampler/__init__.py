"""Sampling from arbitrary token prefixes: vines that grow from trunks whose KV is computed once."""

from vinejax.sampler.bank import prefill
from vinejax.sampler.choice import decode_attention
from vinejax.sampler.records import Counters, Jobs, Layout, Samples, Settings, Trunks, bucket
from vinejax.sampler.schedule import sample

__all__ = [
    "Counters",
    "Jobs",
    "Layout",
    "Samples",
    "Settings",
    "Trunks",
    "bucket",
    "decode_attention",
    "prefill",
    "sample",
]

"""Each number of the updates changes what the optimizer is told."""

import dataclasses
from typing import Any

import pytest

from experiments import configs
from vinejax import policy
from vinejax.config import Config, SftConfig, UpdateConfig
from vinejax.train import learning, supervised
from vinejax.train.algorithms import ppo

MODEL = policy.LlamaConfig(vocab_size=8, hidden=8, layers=1, heads=1, kv_heads=1, ffn=8)
WORDS = {
    "warmup": "linear",
    "divisor": "constant",
    "decay": {"update": "constant", "sft": "cosine"},
}

# These size the data, and are seen in the arrays of a batch.
# max_skipped is the host's patience: tests/train/test_skipped.py.
SIZES = {
    "update": {"max_sequence", "max_skipped"},
    "sft": {"path", "epochs", "batch", "max_length"},
}
CANDIDATES = {"learning_rates", "select"}  # what is trained and kept, not how


def changed(group: str, field: str) -> Config:
    """The configuration of the paper with another value in one field."""
    config = configs.get("math_rho1b")
    part = getattr(config, group)
    old = getattr(part, field)
    word = WORDS.get(field, "")
    new: Any = word[group] if isinstance(word, dict) else word
    if isinstance(old, int | float):
        new = old + 1 if old == 0 else type(old)(old * 2)
    assert new != old
    return dataclasses.replace(config, **{group: dataclasses.replace(part, **{field: new})})


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(UpdateConfig)])
def test_every_number_of_the_update_arrives(field: str):
    if field not in SIZES["update"]:
        before, after = configs.get("math_rho1b"), changed("update", field)
        assert learning.hyper(before, MODEL) != learning.hyper(after, MODEL)


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(SftConfig)])
def test_every_number_of_supervised_fine_tuning_arrives(field: str):
    if field not in SIZES["sft"] | CANDIDATES:
        before, after = configs.get("math_rho1b"), changed("sft", field)
        assert supervised.hyper(before, MODEL, 100) != supervised.hyper(after, MODEL, 100)


@pytest.mark.parametrize("field", ["learning_rate", "epochs", "clip"])
def test_every_number_of_the_critic_arrives(field: str):
    before = configs.get("math_rho1b", "ppo")
    new = {"learning_rate": 3e-6, "epochs": 5, "clip": 0.4}[field]
    after = dataclasses.replace(before, critic=dataclasses.replace(before.critic, **{field: new}))
    assert ppo.hyper(before, MODEL) != ppo.hyper(after, MODEL)
    assert learning.hyper(before, MODEL) == learning.hyper(after, MODEL)


def test_whitening_and_temperature_arrive():
    before = configs.get("math_rho1b")
    raw = dataclasses.replace(before.advantages, whiten=not before.advantages.whiten)
    hot = dataclasses.replace(before.sampling, temperature=2.0)
    for after in (
        dataclasses.replace(before, advantages=raw),
        dataclasses.replace(before, sampling=hot),
    ):
        assert learning.hyper(before, MODEL) != learning.hyper(after, MODEL)

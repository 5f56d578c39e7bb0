"""Where the parameters of a folder are read to: a model that fits no single device must start."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from experiments.configs import tiny
from tests.e2e import runs
from vinejax import policy, sharding
from vinejax.checkpoint import Checkpoints
from vinejax.config import Config, ConfigError
from vinejax.tasks import get
from vinejax.train import learning
from vinejax.train.run import params_of
from vinejax.train.setup import prepare

MESH = (1, 2, 2)  # data, fsdp, tensor


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """`tiny` from a folder with its own tokenizer and an embedding that divides over 2 devices."""
    folder = tmp_path_factory.mktemp("start") / "model"
    tokenizer = get("ledger").tokenizer()
    assert tokenizer is not None
    rows = tokenizer.vocab_size + tokenizer.vocab_size % 2
    model = policy.LlamaConfig(rows, hidden=16, layers=2, heads=4, kv_heads=2, ffn=32, head_dim=4)
    policy.save_hf(folder, model, policy.init(model, jax.random.key(0)), tokenizer)
    start = tiny.config()
    return replace(start, policy=replace(start.policy, path=str(folder), architecture=None))


def on_mesh(config: Config) -> Config:
    data, fsdp, tensor = MESH
    return replace(config, mesh=replace(config.mesh, data=data, fsdp=fsdp, tensor=tensor))


def test_a_folder_is_read_to_where_the_update_wants_it(config: Config):
    with runs.one_device():
        setup, whole = prepare(config)
        assert setup.mesh.size == 1
    with runs.some_devices(4):
        setup, params = prepare(on_mesh(config))
        wanted = sharding.shardings(setup.mesh, policy.logical_axes(setup.model))
        for leaf, placed, same in zip(*map(jax.tree.leaves, (params, wanted, whole)), strict=True):
            assert leaf.sharding == placed
            np.testing.assert_array_equal(leaf, same)
        share = params["layers"]["w_gate"].addressable_shards[0].data.size
        assert share == whole["layers"]["w_gate"].size / 4
        state = learning.Learner(setup, params, Path()).state.params
        jax.tree.map(np.testing.assert_array_equal, state, whole)


def test_a_checkpoint_is_read_to_there_too(config: Config, tmp_path: Path):
    """The SFT policy of a run, from which it starts again and which is its reference."""
    with runs.some_devices(4):
        setup, params = prepare(on_mesh(config))
        doubled = jax.tree.map(lambda x: 2 * x, params)
        with Checkpoints(tmp_path / "checkpoints" / "sft", keep=1) as checkpoints:
            checkpoints.save(1, {"params": jax.tree.map(np.asarray, doubled)}, {})
        found, iteration = params_of(tmp_path, setup.config, params, iteration=0)
        assert iteration == 0
        for leaf, start, same in zip(*map(jax.tree.leaves, (found, params, doubled)), strict=True):
            assert leaf.sharding == start.sharding
            np.testing.assert_array_equal(leaf, same)


def test_a_model_that_does_not_divide_is_refused_before_it_is_read(
    config: Config, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(policy, "load_hf", lambda *_, **__: pytest.fail("weights were read"))
    wide = replace(config, mesh=replace(config.mesh, data=1, fsdp=1, tensor=8))
    with runs.some_devices(8), pytest.raises(ConfigError, match=r"mesh\.tensor is 8"):
        prepare(wide)

"""Traps of evaluation and of batches that do not come out even."""

from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.e2e import runs
from tests.train.enumerable import MODEL, PARAMS, setup_of, weights
from vinejax import sampler, sharding, update
from vinejax.grading import GraderPool
from vinejax.train.scoring import score

# An update of two minibatches in two micro-batches each, twice an iteration.
FLAGS = {"iterations": 2, "sft__epochs": 0, "update__microbatch": 2, "evaluation__every": 1}


def test_evaluations_run_once_each_and_with_keys_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    drawn, graded = [], []
    sample, submit = sampler.sample, GraderPool.submit

    def watched_sample(weights, model, trunks, jobs, settings, key, **others):
        drawn.append(tuple(np.asarray(jax.random.key_data(key)).tolist()))
        return sample(weights, model, trunks, jobs, settings, key, **others)

    def watched_submit(self, pairs, iteration, phase, strict=False):
        graded.append((phase, iteration, strict, drawn[-1]))
        return submit(self, pairs, iteration, phase, strict)

    monkeypatch.setattr(sampler, "sample", watched_sample)
    monkeypatch.setattr(GraderPool, "submit", watched_submit)
    runs.train(*runs.flags(tmp_path / "run", **FLAGS))
    validations = Counter(call[:3] for call in graded if call[0] == "validation")
    assert validations == dict.fromkeys(
        [("validation", iteration, strict) for iteration in (0, 1, 2) for strict in (False, True)],
        1,
    )
    keys = {phase: [key for name, *_, key in graded if name == phase] for phase, *_ in graded}
    assert set(keys) == {"trajectories", "values", "validation", "test"}
    # The same randomness for all policies of a run, but none that training has.
    assert len(set(keys["validation"])) == len(set(keys["test"])) == 1
    assert len(set(keys["trajectories"] + keys["values"])) == 4
    assert not {*keys["validation"], *keys["test"]} & {*keys["trajectories"], *keys["values"]}
    assert set(keys["validation"]) != set(keys["test"])


def rows(count: int, of: int) -> update.Batch:
    """`count` rows of uneven length, filled up to `of` with rows of no token and of garbage."""
    rng = np.random.default_rng(0)
    length = np.zeros(of, np.int32)
    length[:count] = rng.integers(4, 13, count)
    place = np.arange(16)
    garbage = np.where(np.arange(of) < count, 0, np.nan)[:, None]

    def noise(scale: float) -> jax.Array:
        drawn = np.zeros((of, 16))
        drawn[:count] = np.random.default_rng(1).normal(size=(count, 16)) * scale
        return jnp.asarray(drawn + garbage, jnp.float32)

    tokens = np.zeros((of, 16), np.int32)
    tokens[:count] = rng.integers(0, 5, (count, 16))
    return update.Batch(
        tokens=jnp.asarray(tokens),
        length=jnp.asarray(length),
        is_response=jnp.asarray((place >= 3) & (place < length[:, None])),
        advantages=noise(1.0),
        old_logp=noise(0.1) - 1.5,
        ref_logp=noise(0.2) - 1.5,
    )


def test_five_rows_on_eight_devices_are_filled_up_with_rows_of_no_weight():
    optimizer = update.Optimizer(
        learning_rate=1e-2, total_steps=10, decay="constant", eps=0.1, max_grad_norm=1e6
    )

    def updated(batch: update.Batch, microbatch: int, mesh=None):
        hyper = update.Hyper(MODEL, optimizer, microbatch=microbatch)
        made = update.make_step(hyper, mesh)
        state = update.init(jax.device_get(PARAMS), hyper, mesh)
        state, metrics = made.step(state, jax.device_put(batch, made.batch_sharding))
        return jax.device_get((metrics, state.params))

    alone = updated(rows(5, of=5), 5)
    filled = updated(rows(5, of=8), 8, sharding.make_mesh(8, 1, 1))
    assert alone[0].grad_norm > 0.1
    assert filled[0].tokens == alone[0].tokens
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-5, atol=1e-6), filled, alone)


def test_the_last_rows_of_a_score_are_those_of_a_score_by_themselves(
    monkeypatch: pytest.MonkeyPatch,
):
    """Seven sequences, three at a time: the last part is filled up."""
    rng = np.random.default_rng(2)
    sequences = [rng.integers(0, 5, n).astype(np.int32) for n in (9, 3, 5, 12, 7, 4, 8)]
    setup = setup_of()
    whole, _ = score(weights(), setup.model, sequences, 0.8, 12, keep_cache=False)
    monkeypatch.setattr("vinejax.train.scoring.rows_at_once", lambda *_: 3)
    parts, _ = score(weights(), setup.model, sequences, 0.8, 12, keep_cache=False)
    assert parts.tokens == whole.tokens == sum(map(len, sequences))
    assert_array_equal(parts.finite, np.ones(7, bool))
    assert_allclose(parts.logp, whole.logp, atol=1e-5)
    last, _ = score(weights(), setup.model, sequences[-1:], 0.8, 12, keep_cache=False)
    assert_allclose(parts.logp[-1], last.logp[0], atol=1e-5)

"""Keys depend on names and indices, and on nothing else."""

import subprocess
import sys

import jax
import numpy as np
import pytest

from vinejax import rng


def bits(key):
    return tuple(np.asarray(jax.random.key_data(key)).tolist())


def test_keys_are_typed_and_equal_for_equal_names():
    assert jax.dtypes.issubdtype(rng.key(3).dtype, jax.dtypes.prng_key)
    assert bits(rng.phase_key(3, 5, "values")) == bits(rng.phase_key(3, 5, "values"))


def test_seed_iteration_and_phase_each_change_the_key():
    keys = {
        bits(rng.phase_key(seed, iteration, phase))
        for seed in (0, 1)
        for iteration in (0, 1, 2)
        for phase in ("trajectories", "values", "evaluation")
    }
    assert len(keys) == 18


def test_a_name_gives_the_same_key_in_another_process():
    code = (
        "import jax; from vinejax import rng; "
        "print(jax.random.key_data(rng.fold_name(rng.key(7), 'values')).tolist())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = jax.random.key_data(rng.fold_name(rng.key(7), "values")).tolist()
    assert other.stdout.strip() == str(expected)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range_is_refused_with_its_value(seed):
    with pytest.raises(ValueError, match=str(seed)):
        rng.key(seed)

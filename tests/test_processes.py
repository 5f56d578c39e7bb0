"""Several processes: flags, what they tell each other, and checkpoints that move between them."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from tests import several
from tests.states import digests, state_on
from vinejax import processes, sharding
from vinejax.checkpoint import Checkpoints
from vinejax.config import ConfigError, UserError
from vinejax.train.shards import Shards


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("node:1", None, 2), ["--process_id is missing", "--coordinator=HOST:PORT"]),
        ((None, 0, None), ["--coordinator and --processes are missing"]),
        (("node", 0, 2), ["--coordinator is 'node'", "HOST:PORT"]),
        (("node:99999", 0, 2), ["--coordinator is 'node:99999'"]),
        (("node:1", 2, 2), ["--process_id is 2", "0 to 1"]),
        (("node:1", 0, 0), ["--processes is 0"]),
    ],
)
def test_incomplete_flags_are_refused_by_name(flags, words):
    with pytest.raises(ConfigError) as error:
        processes.connect(*flags)
    assert all(word in str(error.value) for word in words), error.value


def test_one_process_needs_no_others():
    processes.connect("127.0.0.1:1", 0, 1)
    assert processes.count() == 1


SRUN = {"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_PROCID": "0"}


@pytest.mark.parametrize(
    ("environment", "several_of_them"),
    [
        ({}, False),
        (SRUN | {"SLURM_NTASKS": "8"}, True),
        (SRUN | {"SLURM_NTASKS": "1"}, False),
        ({"SLURM_NTASKS": "8"}, False),  # a batch script itself, not what srun starts
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, True),
        ({"TPU_WORKER_HOSTNAMES": "localhost"}, False),
    ],
)
def test_a_cluster_is_noticed_where_it_started_several(environment, several_of_them):
    assert processes.launched(environment) == several_of_them


def test_alone_everything_is_ones_own():
    rows = {"a": np.arange(3)}
    assert processes.join(rows)["a"] is rows["a"]
    assert processes.gather(rows) == [rows]
    assert processes.on_first(lambda: (1, 2)) == (1, 2)
    assert processes.first_of("word") == "word"
    with pytest.raises(UserError, match="no such thing"):
        processes.together(several._refuse)


@pytest.mark.parametrize("items", [0, 1, 3, 8, 21])
def test_shares_are_contiguous_and_even(items):
    shards = Shards.of(sharding.make_mesh(2, 2, 2))
    assert (shards.count, [mesh.size for mesh in shards.meshes]) == (4, [2, 2, 2, 2])
    shares = [shards.share(i, items) for i in range(4)]
    assert [x for share in shares for x in share] == list(range(items))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) == shards.most(items)
    assert shards.here(items) == range(items)


def test_every_shard_works_with_its_own_copy_of_the_weights():
    mesh = sharding.make_mesh(2, 2, 2)
    weights = {"w": jax.device_put(np.arange(4.0), sharding.replicated(mesh))}

    def work(weights, part, leads):
        made = jax.numpy.zeros(1)
        return weights["w"].devices(), made.devices(), part, leads

    found = Shards.of(mesh).run(work, weights, 3)
    assert [f[2] for f in found] == [range(1), range(1, 2), range(2, 3)]  # one has nothing
    assert [f[3] for f in found] == [True, False, False]
    assert all(f[0] == f[1] for f in found)
    assert len({next(iter(f[0])) for f in found}) == 3


def test_an_error_in_a_shard_is_raised():
    mesh = sharding.make_mesh(2, 2, 2)

    def work(weights, part, leads):
        if not leads:
            raise ValueError("in a thread")

    with pytest.raises(ValueError, match="in a thread"):
        Shards.of(mesh).run(work, {}, 8)


def test_what_two_processes_tell_each_other(tmp_path: Path):
    several.finish(2, "tests.several", "telling")


def test_a_state_saved_on_8_devices_is_bit_for_bit_the_same_elsewhere(tmp_path: Path):
    """On 1 device, on 4, and on 2 processes of 2 devices, which save it for 1 again."""
    state = state_on(sharding.make_mesh(2, 4), seed=3)
    expected = digests(state)
    with Checkpoints(tmp_path, keep=5) as checkpoints:
        checkpoints.save(1, state, {"order": [3, 1, 2]})
    four = sharding.make_mesh(1, 4, devices=jax.devices()[:4])
    several.finish(2, "tests.several", "restoring", str(tmp_path), json.dumps(expected), devices=2)
    for mesh in (None, four):
        for step in (1, 2):  # from 8 devices, and from the two processes
            with Checkpoints(tmp_path, read_only=True) as checkpoints:
                found, meta = checkpoints.restore(step, state_on(mesh, seed=0))
            assert digests(found) == expected
            assert meta == {"order": [3, 1, 2]}
            drawn = [float(jax.random.uniform(s["keys"][1])) for s in (found, state)]
            assert drawn[0] == drawn[1]

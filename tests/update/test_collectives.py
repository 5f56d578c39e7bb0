"""What the devices send each other in the policy's update, read from the compiled text.

On the CPU gradients are summed by all-reduce, of which a device keeps its part; compilers for GPU
and TPU write a reduce-scatter for it.
"""

import math
import re

import jax
import numpy as np

from vinejax import policy, sharding, update
from vinejax.compiled import hlo

KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
# Sizes that differ from each other, so that an array is known by its shape.
CONFIG = policy.LlamaConfig(
    vocab_size=40, num_tokens=40, hidden=32, layers=2, heads=4, kv_heads=2, ffn=64
)
ROWS, WIDTH = 16, 24


def collectives_of(mesh):
    """(kind, arrays, devices of a group) of each collective of the update on a mesh."""
    optimizer = update.Optimizer(learning_rate=1e-2, total_steps=10, decay="constant")
    hyper = update.Hyper(CONFIG, optimizer, microbatch=ROWS)
    made = update.make_step(hyper, mesh)
    state = update.init(policy.init(CONFIG, jax.random.key(0)), hyper, mesh)
    real, tokens = np.zeros((ROWS, WIDTH), np.float32), np.zeros((ROWS, WIDTH), np.int32)
    length, is_response = np.full(ROWS, WIDTH, np.int32), np.ones((ROWS, WIDTH), bool)
    batch = update.Batch(tokens, length, is_response, real, real, real)
    placed = jax.device_put(batch, made.batch_sharding)
    text = made.step.lower(state, placed).compile().as_text()
    return [
        (kind, leaves, devices)
        for computation in hlo.parse(text).computations.values()
        for i in computation.instructions
        if (kind := i.opcode.removesuffix("-start")) in KINDS
        for leaves, devices in [(i.leaves, group(i.attributes))]
        if devices > 1
    ]


def group(attributes):
    """How many devices exchange data with each other."""
    named = re.search(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}", attributes)
    if named:
        sizes = dict(axis.split("=") for axis in named[1].split(","))
        return math.prod(int(sizes[axis.strip()]) for axis in named[2].split(","))
    counted = re.search(r"replica_groups=\[\d+,(\d+)\]", attributes)
    if counted:
        return int(counted[1])
    listed = re.search(r"replica_groups=\{\{([\d,]*)\}", attributes)
    assert listed, attributes
    return len(listed[1].split(","))


def parameter_shapes():
    """Of all parameters, and of one layer's."""
    shapes = [x.shape for x in jax.tree.leaves(policy.init(CONFIG, jax.random.key(0)))]
    return {tuple(sorted(s)) for s in [*shapes, *(s[1:] for s in shapes if len(s) > 1)]}


def test_whole_copies_exchange_nothing_but_sums():
    found = collectives_of(sharding.make_mesh(8, 1, 1))
    assert {kind for kind, *_ in found} == {"all-reduce"}


def test_fsdp_gathers_weights_and_sums_gradients_and_no_activations_cross_data():
    found = collectives_of(sharding.make_mesh(2, 4, 1))
    gathered = [(leaves, devices) for kind, leaves, devices in found if kind == "all-gather"]
    weights = set()
    for leaves, devices in gathered:
        assert devices == 4  # within the fsdp group
        for leaf in leaves:
            if leaf.dtype.startswith("f"):
                weights.add(tuple(sorted(d for d in leaf.dims if d > 1)))
            else:  # token ids, which the embedding is looked up for
                assert leaf.dtype in ("s32", "pred")
    assert weights <= parameter_shapes(), "something else than a weight was gathered"
    assert {(32, 40), (32, 64), (32, 32)} <= weights  # head, feed-forward, attention
    assert all(devices == 4 for kind, _, devices in found if kind == "all-to-all")
    assert not [kind for kind, *_ in found if kind == "collective-permute"]
    across_data = [leaves for kind, leaves, devices in found if devices != 4]
    assert {kind for kind, _, devices in found if devices != 4} <= {"all-reduce", "reduce-scatter"}
    # Nothing that has a row and a time axis is summed across data: gradients, counts and sums are.
    shapes = {tuple(d for d in leaf.dims if d > 1) for leaves in across_data for leaf in leaves}
    assert not [s for s in shapes if {WIDTH, WIDTH - 1} & set(s)]
    summed = [
        leaf.elements * (devices if kind == "reduce-scatter" else 1)
        for kind, leaves, devices in found
        if kind in ("all-reduce", "reduce-scatter")
        for leaf in leaves
        if leaf.dtype.startswith("f")
    ]
    parameters = sum(x.size for x in jax.tree.leaves(policy.init(CONFIG, jax.random.key(0))))
    assert sum(summed) >= parameters

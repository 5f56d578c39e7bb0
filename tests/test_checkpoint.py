"""Checkpoints: atomic, exact, restorable elsewhere; torn and damaged ones are passed over."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vinejax import sharding
from vinejax.checkpoint import CheckpointError, Checkpoints, CheckpointWarning, leaves, store

ROOT = Path(__file__).resolve().parents[1]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    params: Any
    opt_state: Any
    key: jax.Array
    step: jax.Array


def make_state(seed: int = 0, mesh: jax.sharding.Mesh | None = None) -> State:
    key = jax.random.key(seed)
    params = {"w": jax.random.normal(key, (8, 16)), "half": jnp.ones((3,), jnp.bfloat16)}
    if mesh is not None:
        params["w"] = jax.device_put(params["w"], sharding.batch(mesh))
    return State(params, optax.adamw(1e-3).init(params), key, jnp.int32(seed))


def assert_same(left: Any, right: Any) -> None:
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for name, value in leaves.named(left).items():
        other = leaves.named(right)[name]
        assert value.dtype == other.dtype, name
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            value, other = jax.random.key_data(value), jax.random.key_data(other)
        np.testing.assert_array_equal(np.asarray(value), np.asarray(other), err_msg=name)


@contextlib.contextmanager
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error", CheckpointWarning)
        yield


def test_a_tree_and_its_record_come_back_bit_for_bit(tmp_path):
    state, meta = make_state(3), {"iteration": 7, "rate": 0.1 + 0.2, "order": [3, 1], "none": None}
    with Checkpoints(tmp_path, keep=2) as checkpoints, no_warning():
        checkpoints.save(7, state, meta)
        assert checkpoints.latest() == 7
        step, restored, found = checkpoints.restore_latest(make_state(0))
    assert (step, found) == (7, meta)
    assert_same(restored, state)
    assert jax.random.uniform(restored.key) == jax.random.uniform(state.key)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_typed_keys_keep_shape_and_generator(tmp_path, impl):
    keys = jax.random.split(jax.random.key(1, impl=impl), 4)
    target = {"keys": jax.ShapeDtypeStruct(keys.shape, keys.dtype)}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"keys": keys}, {})
        restored, _ = checkpoints.restore(1, target)
    assert_same(restored, {"keys": keys})
    assert jax.random.key_impl(restored["keys"]) == jax.random.key_impl(keys)


def test_restoring_twice_and_saving_again_change_nothing(tmp_path):
    state = make_state(1)
    with Checkpoints(tmp_path, keep=5) as checkpoints:
        checkpoints.save(1, state, {})
        once, _ = checkpoints.restore(1, state)
        twice, _ = checkpoints.restore(1, once)
        checkpoints.save(2, twice, {})
        again, _ = checkpoints.restore(2, state)
    assert_same(again, state)


@pytest.mark.skipif(jax.device_count() < 8, reason="needs 8 devices")
def test_a_state_moves_from_8_devices_to_1_to_4(tmp_path):
    eight = sharding.make_mesh(2, 4)
    four = sharding.make_mesh(2, 2, devices=jax.devices()[:4])
    state = make_state(1, eight)
    with Checkpoints(tmp_path / "a") as checkpoints:
        checkpoints.save(1, state, {})
        single, _ = checkpoints.restore(1, make_state(0))
    assert len(single.params["w"].sharding.device_set) == 1
    with Checkpoints(tmp_path / "b") as checkpoints:
        checkpoints.save(1, single, {})
        target = jax.eval_shape(lambda: make_state(0))
        target.params["w"] = jax.ShapeDtypeStruct(
            (8, 16), jnp.float32, sharding=sharding.batch(four)
        )
        spread, _ = checkpoints.restore(1, target)
    assert spread.params["w"].sharding == sharding.batch(four)
    assert_same(spread, state)


def test_what_was_on_no_particular_device_can_join_a_mesh_again(tmp_path):
    mesh = sharding.make_mesh(-1)
    state = make_state(1, mesh)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state, {})
        restored, _ = checkpoints.restore(1, state)
    # Were the step committed to the first device, this mix with a sharded array would be refused.
    total = jax.jit(lambda s: s.params["w"].sum() + s.step)(restored)
    assert jnp.isfinite(total)


def test_donating_right_after_a_save_does_not_change_what_is_restored(tmp_path):
    overwrite = jax.jit(lambda x: jax.tree.map(lambda a: a * 0 - 1, x), donate_argnums=0)
    # Big enough for the writing thread to be at work while the buffers are overwritten.
    live = {"a": jnp.arange(8_000_000.0), "b": jnp.arange(2_000_000)}
    host = np.arange(1_000_000)
    expected = {**jax.tree.map(np.array, live), "host": host.copy()}
    jax.block_until_ready(overwrite(jax.tree.map(jnp.copy, live)))  # compiled beforehand
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {**live, "host": host}, {})
        for _ in range(3):
            live = overwrite(live)
        host[:] = -1
        jax.block_until_ready(live)
        restored, _ = checkpoints.restore(1, expected)
    assert_same(restored, expected)


def test_saved_values_share_no_buffer_with_the_live_ones():
    mesh = sharding.make_mesh(-1)
    spread = jax.device_put(jnp.arange(16.0), sharding.batch(mesh))
    for leaf in (jnp.ones(3), jnp.int32(1), jax.random.key(0), spread):
        copied = leaves.detached(leaf)
        live = jax.random.key_data(leaf) if leaves.is_key(leaf) else leaf
        assert copied.sharding == live.sharding
        for a, b in zip(copied.addressable_shards, live.addressable_shards, strict=True):
            assert a.data.unsafe_buffer_pointer() != b.data.unsafe_buffer_pointer()
    host = np.ones(3)
    assert not np.shares_memory(leaves.detached(host), host)


def test_a_save_compiles_nothing(tmp_path):
    state = {"x": jax.device_put(np.ones((3, 7, 11), np.float32)), "key": jax.random.key(0)}
    events = []

    def count(name, *_, **__):
        if "backend_compile" in name:
            events.append(name)

    jax.monitoring.register_event_duration_secs_listener(count)
    try:
        with Checkpoints(tmp_path) as checkpoints:
            checkpoints.save(1, state, {})
    finally:
        jax.monitoring.unregister_event_duration_listener(count)
    assert events == []


def test_the_newest_stay_and_every_period(tmp_path):
    with Checkpoints(tmp_path, keep=2, keep_period=4) as checkpoints:
        for step in range(1, 8):
            checkpoints.save(step, {"x": jnp.ones(3) * step}, {})
        assert checkpoints.steps() == [4, 6, 7]


def test_a_resumed_run_forgets_later_checkpoints_and_writes_its_own(tmp_path):
    with Checkpoints(tmp_path, keep=9) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(step, {"x": jnp.ones(3) * step}, {})
        with pytest.raises(ValueError, match=r"checkpoint 2 exists; call delete_after\(1\)"):
            checkpoints.save(2, {"x": jnp.ones(3)}, {})
        checkpoints.delete_after(1)
        assert checkpoints.steps() == [1]
        checkpoints.save(2, {"x": jnp.zeros(3)}, {})
        step, tree, _ = checkpoints.restore_latest({"x": jnp.ones(3)})
    assert step == 2
    assert tree["x"].tolist() == [0, 0, 0]


def test_nothing_saved_is_none(tmp_path):
    with Checkpoints(tmp_path / "new") as checkpoints:
        assert checkpoints.latest() is None
        assert checkpoints.restore_latest({"x": jnp.ones(3)}) is None


def test_killed_in_a_save_the_one_before_is_used_and_the_torn_one_removed(tmp_path):
    code = """
import os, signal, sys
import jax.numpy as jnp
from vinejax.checkpoint import Checkpoints, store

checkpoints = Checkpoints(sys.argv[1], keep=1)
checkpoints.save(1, {"x": jnp.arange(5.0)}, {"iteration": 1})
checkpoints.wait()
# Dies in the writing thread, when all arrays are written and the rename is next.
store._sizes = lambda folder: os.kill(os.getpid(), signal.SIGKILL)
checkpoints.save(2, {"x": jnp.zeros(5)}, {"iteration": 2})
checkpoints.wait()
"""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, env=environment, capture_output=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert len(list(tmp_path.glob("2*"))) == 1
    with no_warning(), Checkpoints(tmp_path, read_only=True) as reader:
        assert reader.latest() == 1
    assert len(list(tmp_path.glob("2*"))) == 1  # a reader leaves a running save alone
    with pytest.warns(CheckpointWarning, match=r"unfinished checkpoints 2\."):
        checkpoints = Checkpoints(tmp_path, keep=1)
    with checkpoints:
        step, tree, meta = checkpoints.restore_latest({"x": jnp.ones(5)})
        assert (step, meta) == (1, {"iteration": 1})
        assert tree["x"].tolist() == [0, 1, 2, 3, 4]
        checkpoints.save(2, tree, {})
        assert checkpoints.latest() == 2
    assert [path.name for path in tmp_path.iterdir()] == ["2"]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A folder with checkpoints 1 and 2, whose arrays are large enough for files of their own."""
    folder = tmp_path_factory.mktemp("two")
    with Checkpoints(folder, keep=2) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, {"x": jnp.full((2000,), step, jnp.float32)}, {"at": step})
    return folder


def content(folder):
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if path.parts[0] in ("arrays", "record", "files.json")]


CUTS = {
    "to half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "to nothing": lambda path: os.truncate(path, 0),
    "away": lambda path: path.unlink(),
}


@pytest.mark.parametrize("how", CUTS)
def test_each_file_cut_off_after_the_commit_sends_the_run_to_the_one_before(two, tmp_path, how):
    """One by one, all of them: the file is named, and the numbers are those of checkpoint 1."""
    target = {"x": jnp.zeros(2000)}
    assert len(content(two / "2")) > 5
    assert {path.parts[0] for path in content(two / "2")} == {"arrays", "record", "files.json"}
    shutil.copytree(two, tmp_path / "cut")
    for path in content(two / "2"):
        damaged = tmp_path / "cut" / "2" / path
        CUTS[how](damaged)
        named = rf"checkpoint 2 in .* is damaged and skipped: {re.escape(str(path))}"
        with Checkpoints(tmp_path / "cut", read_only=True) as checkpoints:
            with pytest.warns(CheckpointWarning, match=named):
                assert checkpoints.latest() == 1
            with pytest.warns(CheckpointWarning, match=named):
                step, tree, meta = checkpoints.restore_latest(target)
            assert (step, meta) == (1, {"at": 1}), path
            np.testing.assert_array_equal(tree["x"], np.ones(2000, np.float32))
            with pytest.raises(CheckpointError, match=r"checkpoint 2 .* is damaged"):
                checkpoints.restore(2, target)
        assert store.whole(tmp_path / "cut") == [1], path
        shutil.copy2(two / "2" / path, damaged)
    assert store.whole(tmp_path / "cut") == [1, 2]


def test_a_damaged_checkpoint_makes_room_for_the_one_that_is_made_again(two, tmp_path):
    shutil.copytree(two, tmp_path / "cut")
    (tmp_path / "cut" / "2" / "files.json").unlink()
    with Checkpoints(tmp_path / "cut", keep=2) as checkpoints:
        checkpoints.delete_after(1)
        assert checkpoints.steps() == [1]
        checkpoints.save(2, {"x": jnp.full((2000,), 2, jnp.float32)}, {"at": 2})
    assert store.whole(tmp_path / "cut") == [1, 2]


def test_a_half_deleted_checkpoint_is_passed_over(two, tmp_path):
    shutil.copytree(two, tmp_path / "a")
    shutil.rmtree(tmp_path / "a" / "2")
    (tmp_path / "a" / "2").mkdir()
    with Checkpoints(tmp_path / "a") as checkpoints, pytest.warns(CheckpointWarning):
        assert checkpoints.restore_latest({"x": jnp.zeros(2000)})[0] == 1


def test_when_all_are_damaged_the_run_does_not_start_over_silently(two, tmp_path):
    shutil.copytree(two, tmp_path / "a")
    for step in ("1", "2"):
        (tmp_path / "a" / step / "files.json").unlink()
    with Checkpoints(tmp_path / "a") as checkpoints:
        with pytest.warns(CheckpointWarning):
            assert checkpoints.latest() is None
        with pytest.warns(CheckpointWarning), pytest.raises(CheckpointError, match=r"\[1, 2\]"):
            checkpoints.restore_latest({"x": jnp.zeros(2000)})


def test_a_state_of_another_shape_is_refused_by_name(two):
    with Checkpoints(two, read_only=True) as reader:
        with pytest.raises(CheckpointError, match=r"x is float32 \[2000\], expected float32 \[3\]"):
            reader.restore_latest({"x": jnp.zeros(3)})
        with pytest.raises(CheckpointError, match="y is missing, expected"):
            reader.restore(2, {"x": jnp.zeros(2000), "y": jnp.zeros(3)}, partial=True)
        with pytest.raises(CheckpointError, match="x is not expected"):
            reader.restore(2, {})
        with pytest.raises(CheckpointError, match=r"no checkpoint 5; it has \[1, 2\]"):
            reader.restore(5, {"x": jnp.zeros(2000)})


def test_weights_are_read_without_the_rest_by_a_reader(tmp_path):
    state = make_state(2)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"state": state}, {"a": 1})
    with Checkpoints(tmp_path, read_only=True) as reader:
        target = {"state": {"params": jax.eval_shape(lambda: state.params)}}
        part, meta = reader.restore(1, target, partial=True)
    assert_same(part["state"]["params"], state.params)
    assert meta == {"a": 1}


def test_a_reader_of_no_folder_is_told(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist"):
        Checkpoints(tmp_path / "none", read_only=True)


def test_an_unknown_format_is_refused_with_its_number(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "FORMAT_VERSION", 99)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"x": jnp.ones(3)}, {})
    monkeypatch.undo()
    with Checkpoints(tmp_path) as checkpoints:
        with pytest.raises(CheckpointError, match="format 99, this version of vinejax reads 1"):
            checkpoints.restore_latest({"x": jnp.ones(3)})
        with pytest.raises(CheckpointError, match="format 99"):
            checkpoints.latest()


def test_what_is_no_array_or_no_json_is_refused_at_the_call(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        with pytest.raises(TypeError, match="a is int"):
            checkpoints.save(1, {"a": 1}, {})
        with pytest.raises(TypeError, match="JSON"):
            checkpoints.save(1, {"a": jnp.ones(3)}, {"b": object()})
        assert checkpoints.latest() is None


def test_no_pickle_on_disk(two):
    for path in two.rglob("*"):
        assert not path.is_file() or not path.read_bytes().startswith(b"\x80\x04"), path

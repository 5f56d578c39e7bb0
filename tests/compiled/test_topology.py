"""Devices that are not there: their names, and the sampler's loop compiled for them."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks import ahead_of_time
from vinejax.compiled import topology
from vinejax.config import ConfigError, UserError


def test_a_name_says_kind_and_shape():
    gpus = topology.parse("h100:8")
    assert (gpus.device.platform, gpus.shape, gpus.count) == ("gpu", (8,), 8)
    slice_ = topology.parse("v5p:2x2x2")
    assert (slice_.device.platform, slice_.shape, slice_.count) == ("tpu", (2, 2, 2), 8)
    assert str(slice_) == "v5p:2x2x2"


def test_a_part_is_a_slice_of_its_own():
    parts = [str(topology.parse("v5e:8x8").part(n)) for n in (1, 2, 4, 8)]
    assert parts == ["v5e:1x1", "v5e:1x2", "v5e:2x2", "v5e:2x4"]
    assert str(topology.parse("v5p:2x2x2").part(4)) == "v5p:2x2x1"
    assert str(topology.parse("h100:8").part(3)) == "h100:3"
    with pytest.raises(ConfigError, match="power of two"):
        topology.parse("v5e:8x8").part(3)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("h1000:8", "h100"),
        ("h100", "h100:8"),
        ("h100:", "h100:8"),
        ("h100:0", "h100:8"),
        ("h100:2x2", "h100:8"),
        ("v5e:2x", "v5e:2x2"),
        ("v5e:-1x2", "v5e:2x2"),
        ("v5e:2x2x2x2", "too many axes"),
        ("", "choose from"),
    ],
)
def test_a_name_that_is_none_is_refused_with_what_to_write(text: str, part: str):
    with pytest.raises(ConfigError, match=part) as error:
        topology.parse(text)
    assert repr(text) in str(error.value)


def test_figures_are_in_the_order_of_the_generations():
    a100, h100, h200 = (topology.DEVICES[name] for name in ("a100-80gb", "h100", "h200"))
    assert a100.flops < h100.flops
    assert h100.memory < h200.memory
    v5e, v5p, v6e = (topology.DEVICES[name] for name in ("v5e", "v5p", "v6e"))
    assert v5e.memory < 16 * 2**30 < v5p.memory
    assert v5e.flops < v5p.flops < v6e.flops
    assert all(10e9 < d.link < d.bandwidth < d.flops for d in topology.DEVICES.values())


@pytest.mark.parametrize(("name", "package"), [("h100:1", "jax[cuda12]"), ("v5e:1", "jax[tpu]")])
def test_a_compiler_that_is_missing_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str
):
    monkeypatch.setattr(topology.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UserError) as error:
        topology.describe(topology.parse(name))
    assert package in str(error.value)
    assert name in str(error.value)


@pytest.mark.parametrize(("name", "part"), [("h1000:1", "did you mean h100"), ("h100:8", "h100:1")])
def test_the_benchmark_refuses_what_it_cannot_compile_for(
    capsys: pytest.CaptureFixture[str], name: str, part: str
):
    assert ahead_of_time.main([f"--topology={name}"]) == 2
    assert part in capsys.readouterr().err


# One process for each: a compiler is told its platform when it is loaded, and TPU's may not be
# loaded beside a GPU's. The widths keep weights, caches and activations in the proportions of a
# real step; the depth is of no matter to a loop's body.
PROGRAM = """
import json, sys
from benchmarks import ahead_of_time
print(json.dumps(ahead_of_time.sampling(sys.argv[1], ahead_of_time.SMALL)))
"""


def compiled_loop(name: str) -> dict:
    wanted = topology.parse(name)
    missing = topology.missing_compiler(wanted.device.platform)
    if missing is not None:
        pytest.skip(f"the compiler for {wanted.device.platform} is not installed ({missing})")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", ["h100:1", "v5e:1"])
def test_the_loop_has_no_scatter_and_no_copy_of_a_cache_and_moves_little(name: str):
    found = compiled_loop(name)
    assert found["scatters"] == []
    assert found["cache_copies"] == []
    assert found["cache_write_backs"] == []
    assert found["conditionals"] == []
    assert found["over_floor"] <= 2.0

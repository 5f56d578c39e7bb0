"""Plans: exit codes and messages anywhere; compiled where a compiler for the platform is."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchmarks import plans
from experiments import plan, shapes
from vinejax.compiled import facts, topology
from vinejax.compiled.facts import Facts

KNOWN = Facts("0" * 16, 1.0, False, 10, 20, 5, 5, 1, 100, 50, {}, {})


def compilers(name: str) -> None:
    missing = topology.missing_compiler(topology.parse(name).device.platform)
    if missing is not None:
        pytest.skip(f"no compiler for {name}: pip install '{missing}'")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "experiments.plan", *words],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", ["v5e:2x2", "h100:2"])
def test_the_tiny_configuration_is_planned_and_then_comes_from_the_cache(name: str, tmp_path: Path):
    compilers(name)
    words = ("--config=tiny", f"--topology={name}", f"--cache={tmp_path}", "--json")
    done = run(*words)
    assert done.returncode == 0, done.stderr[-2000:]
    first = json.loads(done.stdout.splitlines()[-1])
    assert first["fits"]
    assert set(first["phases"]) == {"sampling", "scoring", "reference", "update"}
    for phase in first["phases"].values():
        assert phase["program"]["seconds"] > 0
        assert not phase["program"]["cached"]
        assert 0 < phase["memory"]["parameters"] < phase["total"] < first["device_memory"]
        assert phase["flops"] > 0
        assert phase["bytes_moved"] > 0
    assert first["phases"]["update"]["program"]["sent"]["all-reduce"]["bytes"] > 0
    again = json.loads(run(*words).stdout.splitlines()[-1])
    programs = [p["program"] for p in again["phases"].values()]
    assert all(p["cached"] for p in programs)
    assert [p["hash"] for p in programs] == [p["program"]["hash"] for p in first["phases"].values()]


def test_what_does_not_fit_exits_3_and_says_what_to_change(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """7B with a critic on one H100: known from sizes alone, so nothing is compiled."""
    monkeypatch.setattr(topology, "describe", lambda wanted: jax.devices()[: wanted.count])
    words = ["--config=math_deepseekmath7b", "--config.algorithm=ppo", "--topology=h100:1"]
    assert plan.main([*words, "--json"]) == 3
    said = capsys.readouterr()
    result = json.loads(said.out.splitlines()[-1])
    assert not result["fits"]
    assert all(phase["program"] is None for phase in result["phases"].values())
    assert "mesh.fsdp" in said.err
    assert plan.main(words) == 3
    assert "not compiled" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--config=tiny"], ["--topology is missing", "h100:8"]),
        (["--config=tiny", "--topology=h200x"], ["h200x", "h200"]),
        (["--config=tiny", "--topology=h100:2", "--shape=rho2b"], ["--shape", "rho1b", "hidden"]),
        (
            ["--config=math_rho1b", "--config.policy.path=some/model", "--topology=h100:2"],
            ["some/model", "--shape=rho1b"],
        ),
        (
            ["--config=math_rho1b", "--config.mesh.tensor=8", "--topology=h100:8"],
            ["mesh.tensor is 8", "4 key/value heads"],
        ),
        (["--config=tiny", "--config.algorithm=restem", "--topology=h100:2"], ["restem", "ppo"]),
    ],
)
def test_bad_input_exits_2_and_names_the_remedy(
    words: list[str],
    parts: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(topology, "describe", lambda wanted: jax.devices()[: wanted.count])
    assert plan.main(words) == 2
    said = capsys.readouterr().err
    assert all(part in said for part in parts), said


@pytest.mark.parametrize(("name", "package"), [("h100:1", "jax[cuda12]"), ("v5e:1", "jax[tpu]")])
def test_a_missing_compiler_is_named(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(topology.importlib.util, "find_spec", lambda _: None)
    assert plan.main(["--config=tiny", f"--topology={name}"]) == 2
    assert package in capsys.readouterr().err


def test_facts_are_kept_and_a_broken_file_is_no_obstacle(tmp_path: Path):
    facts.write(tmp_path / "new", KNOWN)
    assert facts.read(tmp_path / "new", KNOWN.hash) == replace(KNOWN, cached=True)
    assert facts.read(tmp_path, KNOWN.hash) is None
    (tmp_path / f"{KNOWN.hash}.json").write_text('{"hash": ')
    assert facts.read(tmp_path, KNOWN.hash) is None
    facts.write(tmp_path, KNOWN)
    assert facts.read(tmp_path, KNOWN.hash) is not None
    assert not list(tmp_path.glob("*.tmp"))


def test_a_program_is_compiled_once_for_each_text_device_and_effort(tmp_path: Path):
    wanted = topology.parse("h100:1")

    def made(shape: int, effort: float = 0.0) -> Facts:
        lowered = jax.jit(lambda x: x @ x).lower(jax.ShapeDtypeStruct((shape, shape), jnp.float32))
        return facts.compiled(lowered, wanted, 1, tmp_path, effort)

    first, again, other, harder = made(8), made(8), made(16), made(8, -1.0)
    assert not first.cached
    assert again == replace(first, cached=True)
    assert len({first.hash, other.hash, harder.hash}) == 3
    assert first.arguments == first.outputs == 8 * 8 * 4
    assert facts.hash_of("x", wanted, 0.0) != facts.hash_of("x", topology.parse("h200:1"), 0.0)


def test_a_program_that_a_compiler_refuses_for_its_size_is_a_fact_not_an_error():
    said = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.50G of 15.75G hbm."
    found = facts._refused("f" * 16, 1.0, said)
    assert (found.arguments, found.temporaries) == (None, round(20.5 * 2**30))
    with pytest.raises(RuntimeError, match="INTERNAL"):
        facts._refused("f" * 16, 1.0, "INTERNAL: something else")


def test_shapes_are_those_of_the_models():
    parameters = {"rho1b": 1.10e9, "deepseekmath7b": 6.91e9}
    from vinejax.train import sizes

    for name, count in parameters.items():
        assert sizes.parameters(shapes.SHAPES[name]) == pytest.approx(count, rel=0.01)


def made(critic: bool) -> dict[str, Any]:
    held = {"parameters": 8, "critic": 8 * 10**9, "critic optimizer": 16 * 10**9}
    held = held if critic else {"parameters": 8}
    phase = {"memory": held, "total": 30 * 10**9, "share": 0.35, "program": asdict(KNOWN)}
    return {
        "config": "math_rho1b",
        "algorithm": "ppo" if critic else "vineppo",
        "topology": "h100:8",
        "mesh": {"data": -1, "fsdp": 4, "tensor": 1},
        "engine": {"rows": 8, "slots": 16, "wave": 64},
        "microbatch": 16,
        "remat": "dots",
        "fits": True,
        "estimated_seconds_an_iteration": 100.0,
        "phases": {"sampling": phase, "update": phase},
    }


def test_the_table_says_what_a_critic_costs():
    text = " ".join(plans.table([made(False), made(True)]).split())
    assert "| math_rho1b | ppo | h100:8 | 2 x 4 x 1 | 16, dots | 8 x 16, 64 | 30.0 (35%)" in text
    # 4 shards of weights and moments, and of a gradient as large as the weights.
    assert "128 GB (96 GB of them all the time)" in text

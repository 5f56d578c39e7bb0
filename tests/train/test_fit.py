"""What is chosen for a model, a device and a number of them: by rules, without a compiler."""

from dataclasses import replace

import pytest

from experiments import configs, shapes
from vinejax import policy, sampler
from vinejax.compiled import topology
from vinejax.config import Config, ConfigError, EngineConfig, MeshConfig
from vinejax.train import fit, plan, sizes

RHO, DEEPSEEK = shapes.SHAPES["rho1b"], shapes.SHAPES["deepseekmath7b"]
MODELS = {"math_rho1b": RHO, "math_deepseekmath7b": DEEPSEEK}
HARDWARE = ("a100-80gb:4", "h100:8", "v5p:2x2x2", "v5e:8x8")


def chosen(name: str, devices: str, algorithm: str = "vineppo", **mesh: int) -> fit.Fit:
    wanted = topology.parse(devices)
    config = configs.get(name, algorithm)
    if mesh:
        config = replace(config, mesh=replace(config.mesh, **mesh))
    machine = fit.Machine(wanted.count, wanted.device.memory, plan.per_process(wanted))
    return fit.fit(config, bfloat16(MODELS[name]), machine)


def bfloat16(model: policy.LlamaConfig) -> policy.LlamaConfig:
    return replace(model, compute_dtype="bfloat16")


@pytest.mark.parametrize("algorithm", ["vineppo", "ppo"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("devices", HARDWARE)
def test_all_that_is_chosen_divides_what_it_must(name: str, devices: str, algorithm: str):
    found, count = chosen(name, devices, algorithm), topology.parse(devices).count
    c = found.config
    assert count % (c.mesh.fsdp * c.mesh.tensor) == 0
    assert MODELS[name].kv_heads % c.mesh.tensor == 0
    groups = count // c.mesh.tensor
    assert c.update.minibatch % c.update.microbatch == 0
    assert c.update.microbatch % groups == 0
    assert c.sft.microbatch % groups == 0
    assert c.policy.remat in ("none", "dots", "block")
    assert c.engine.wave >= 1
    if algorithm == "vineppo":
        assert c.engine.wave % c.samples == 0
    assert min(c.engine.rows, c.engine.slots, c.engine.ring) >= 1
    c.validate()
    names = {"mesh.fsdp", "mesh.tensor", "update.microbatch", "policy.remat", "engine.wave"}
    assert names <= set(found.reasons)
    assert all("\n" not in why for why in found.reasons.values())


def test_a_model_too_large_for_a_chips_memory_is_split_over_tensor():
    assert chosen("math_deepseekmath7b", "v5e:8x8").config.mesh.tensor == 4
    assert chosen("math_deepseekmath7b", "v5p:2x2x2").config.mesh.tensor == 1
    assert chosen("math_rho1b", "v5e:8x8").config.mesh.tensor == 1


def test_the_state_is_sharded_no_further_than_it_must():
    assert chosen("math_rho1b", "a100-80gb:4").config.mesh.fsdp == 1
    sharded = chosen("math_deepseekmath7b", "h100:8").config.mesh.fsdp
    assert sharded > 1
    assert chosen("math_deepseekmath7b", "h100:8", "ppo").config.mesh.fsdp >= sharded


def test_less_memory_recomputes_more_and_holds_fewer_trunks():
    large = fit.Machine(8, 80 * 10**9, 8)
    small = replace(large, memory=24 * 10**9)
    config, model = configs.get("math_rho1b"), bfloat16(RHO)
    much, little = (fit.fit(config, model, m).config for m in (large, small))
    order = ("none", "dots", "block")
    assert order.index(much.policy.remat) < order.index(little.policy.remat)
    assert much.engine.wave >= little.engine.wave
    assert much.engine.rows * much.engine.slots >= little.engine.rows * little.engine.slots


def test_what_is_set_stays():
    config = configs.get("math_rho1b")
    config = replace(
        config,
        mesh=MeshConfig(data=1, fsdp=2, tensor=2),
        policy=replace(config.policy, remat="dots"),
        update=replace(config.update, microbatch=8),
        sft=replace(config.sft, microbatch=8),
        engine=replace(config.engine, rows=2, slots=4, ring=64, wave=16),
    )
    found = fit.fit(config, bfloat16(RHO), fit.Machine(4, 80 * 10**9, 4))
    assert found.config == config
    assert found.reasons == {}


def test_without_known_memory_runs_are_as_they_were():
    """A CPU reports none: one shard, whole minibatches, the engine's own sizes."""
    config = configs.get("math_rho1b")
    found = fit.fit(config, RHO, fit.Machine(1, None, 1)).config
    assert found.mesh == MeshConfig(data=-1, fsdp=1, tensor=1)
    assert (found.update.microbatch, found.policy.remat) == (found.update.minibatch, "block")
    assert found.sft.microbatch == fit.SFT_MICROBATCH
    assert found.engine == config.engine
    assert fit.fit(Config(), RHO, fit.Machine(1, None, 1)).config.update == Config().update


def test_a_tensor_that_does_not_divide_the_heads_is_refused_with_both_numbers():
    with pytest.raises(ConfigError, match=r"mesh.tensor is 8.* the 4 key/value heads"):
        chosen("math_rho1b", "h100:8", tensor=8)


@pytest.mark.parametrize(("tensor", "attention"), [(1, "cudnn"), (2, "xla")])
def test_decoding_takes_the_kernel_only_where_devices_share_no_heads(tensor: int, attention: str):
    model = replace(bfloat16(RHO), decode_attention="cudnn")
    found = chosen("math_rho1b", "h100:8", tensor=tensor)
    assert fit.model_of(found.config, model).decode_attention == attention
    assert fit.model_of(found.config, model).remat == found.config.policy.remat


def test_a_kernel_that_cannot_share_heads_is_refused_where_it_was_asked_for():
    config = chosen("math_rho1b", "h100:8", tensor=2).config
    config = replace(config, engine=replace(config.engine, attention="cudnn"))
    with pytest.raises(ConfigError, match=r"engine\.attention is 'cudnn'.*mesh\.tensor is 2"):
        fit.model_of(config, replace(bfloat16(RHO), decode_attention="cudnn"))


def test_what_is_given_of_the_engine_stands_over_what_is_made():
    made = sampler.Layout(8, 16, ring=64, chunk=32, trunks_per_row=2)
    assert fit.layout_of(EngineConfig(), made) == made
    given = EngineConfig(rows=1, slots=3, ring=5, chunk=7, trunks=9)
    assert fit.layout_of(given, made) == sampler.Layout(1, 3, ring=5, chunk=7, trunks_per_row=9)


def test_sizes_by_hand():
    c = policy.LlamaConfig(10, 4, 3, 2, 1, 5, compute_dtype="bfloat16")
    # A layer: 2 x 16 for q and o, 2 x 8 for k and v, 3 x 20 for the mlp, two norms of 4.
    assert sizes.parameters(c) == 3 * (32 + 16 + 60 + 8) + 40 + 40 + 4
    assert sizes.kv_bytes(c) == 2 * 2 * 3 * 1 * 2
    config = configs.get("math_rho1b", "ppo")
    assert sizes.state_bytes(config, c) == 12 * (2 * sizes.parameters(c) - 40)
    halved = replace(config, update=replace(config.update, first_moment="bfloat16"))
    assert sizes.state_bytes(halved, c) == 10 * (2 * sizes.parameters(c) - 40)


def test_a_pair_takes_the_memory_of_two_sequences():
    unknown = fit.Machine(1, None, 1)
    config = configs.get("math_rho1b", "dpo_positive")
    assert fit.fit(config, RHO, unknown).config.update.microbatch == config.update.minibatch // 2
    large = fit.Machine(1, 80 * 10**9, 1)
    rows = {
        algorithm: fit.fit(
            replace(
                configs.get("math_rho1b", algorithm), policy=replace(config.policy, remat="block")
            ),
            bfloat16(RHO),
            large,
        ).config.update.microbatch
        for algorithm in ("grpo", "dpo_positive")
    }
    assert rows["dpo_positive"] <= rows["grpo"] // 2

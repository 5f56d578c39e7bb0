"""Small random policies for tests."""

import jax

from vinejax import policy


def tiny(seed: int = 0, scale: float = 2.0, **changes) -> tuple[policy.LlamaConfig, policy.Params]:
    """Two layers; matrices are `scale` times the usual size, so that choices are distinct."""
    sizes = {"embed": 5.0 if changes.get("tied") else 0.1, "head": 5.0, "final_norm": 1.0}
    shape = {"vocab_size": 40, "hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2}
    config = policy.LlamaConfig(**shape | {"head_dim": 8, "ffn": 64} | changes)
    params = policy.init(config, jax.random.key(seed))
    layers = {name: x * scale if x.ndim > 2 else x for name, x in params["layers"].items()}
    return config, {name: x * sizes[name] for name, x in params.items() if name != "layers"} | {
        "layers": layers
    }

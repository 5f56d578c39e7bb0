"""Small random policies for tests."""

import jax

from vinejax import policy


def tiny(seed: int = 0, scale: float = 2.0, **changes) -> tuple[policy.LlamaConfig, policy.Params]:
    """Two layers; matrices are `scale` times the usual size, so that choices are distinct."""
    shape = {"vocab_size": 40, "hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2}
    config = policy.LlamaConfig(**shape | {"head_dim": 8, "ffn": 64} | changes)
    params = policy.init(config, jax.random.key(seed))
    return config, jax.tree.map(
        lambda x: x * scale if x.ndim > 2 else x * 5 if x.ndim == 2 else x, params
    )

"""Floating-point operations of a Llama decoder, by formula; a multiply-add is two.

Matrix products alone: norms, rotations, softmax and the optimizer come to a few percent of small
models and to less of large ones. (XLA's own count takes a loop's body once, whatever its trips, and
has none for programs that run elsewhere, so it serves as the check only.)
"""

from vinejax.policy import LlamaConfig


def block_parameters(config: LlamaConfig) -> int:
    """Parameters of all blocks that a token is multiplied with."""
    attention = 2 * (config.heads + config.kv_heads) * config.head_dim * config.hidden
    return config.layers * (attention + 3 * config.hidden * config.ffn)


def head_parameters(config: LlamaConfig) -> int:
    """Parameters of the head, tied or not."""
    return config.hidden * config.vocab_size


def matmul_parameters(config: LlamaConfig) -> int:
    """Parameters that a token with logits is multiplied with."""
    return block_parameters(config) + head_parameters(config)


def causal_pairs(lengths: list[int] | tuple[int, ...]) -> int:
    """Pairs of a token and one that it may see, itself included, in sequences of these lengths."""
    return sum(n * (n + 1) // 2 for n in lengths)


def forward(config: LlamaConfig, tokens: int, pairs: int, scored: int) -> int:
    """One pass over `tokens`, of which `scored` have logits.

    `pairs` are the pairs of query and key: `causal_pairs` is what is needed; B * T * T is what an
    attention computes that masks afterwards.
    """
    attention = 4 * config.layers * config.heads * config.head_dim * pairs
    return 2 * block_parameters(config) * tokens + attention + 2 * head_parameters(config) * scored


def decode(config: LlamaConfig, slots: int, cells: int) -> int:
    """One step of `slots` tokens; `cells` keys, of all slots together, are attended to."""
    return forward(config, slots, cells, slots)


def update(config: LlamaConfig, tokens: int, pairs: int, scored: int) -> int:
    """Forward and backward pass without the optimizer and without what is computed twice.

    An MFU is stated for this work.
    """
    return 3 * forward(config, tokens, pairs, scored)


def recomputed(config: LlamaConfig, tokens: int, pairs: int, scored: int) -> int:
    """What an update computes a second time.

    The head for `scored` tokens (those whose logits come in chunks; 0 if they all fit in one), and
    with `config.remat` the blocks up to their last product, which the gradient does not need (with
    "dots" their attention alone).
    """
    again = 2 * head_parameters(config) * scored
    if config.remat == "none":
        return again
    if config.remat == "dots":
        return again + 4 * config.layers * config.heads * config.head_dim * pairs
    last = 2 * config.layers * config.hidden * config.ffn * tokens
    return again + forward(config, tokens, pairs, 0) - last

"""The vocabulary of array records: why a sequence ended, and the names of the axes.

Axis letters, the same everywhere: `B` sequences, `T` tokens, `S` slots, `P` prefixes, `K` rollouts
of a prefix, `D` model, `F` hidden, `N` query heads, `G` KV heads, `H` head size, `V` vocabulary,
`L` layers.
Index t of a per-token array names the token that was produced, `tokens[b, t]`.
"""

from enum import IntEnum

from jaxtyping import Array, Bool, Float, Int

Tokens = Int[Array, "B T"]
TokenMask = Bool[Array, "B T"]
PerToken = Float[Array, "B T"]
PerSequence = Float[Array, "B"]
Lengths = Int[Array, "B"]
Scalar = Float[Array, ""]


class Finish(IntEnum):
    """Why a sampled sequence ended.

    LENGTH means cut off, not ended; ERROR means that a log-probability was not finite.
    """

    RUNNING = 0
    EOS = 1
    STOP = 2
    LENGTH = 3
    ERROR = 4

"""The update step beside torch, in turns, in tokens per CPU-second.

    python -m benchmarks.update [--shape=slice6] [--rows=16] [--width=256] [--peer=torch] [--json]

One update is a whole minibatch: forward and backward pass, clipped surrogate with whitened
advantages, KL to a reference, clip by the gradient's norm, AdamW; fp32, one thread each, on one
core. The peer is eager torch on transformers' Llama with the same loss.

`share_of_peak` is the MFU: the matrix products that forward and backward pass need (6 operations a
parameter and token; attention's own are left out) over what the measured peak would do meanwhile.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any, Literal

from benchmarks import command, turns, workload
from benchmarks.engines import model
from vinejax.compiled import flops
from vinejax.config import UserError

OURS = "vinejax"


@dataclass(frozen=True)
class Flags:
    """What to measure."""

    shape: str = "slice6"  # slice6, smollm2-135m, or hidden,layers,heads,kv_heads,head_dim,ffn,V
    peer: Literal["torch", "none"] = "none"
    rows: int = 16  # Sequences of the minibatch.
    width: int = 256  # Tokens of each.
    prompt: int = 0  # Of which so many are the prompt.
    microbatch: int = 0  # Sequences of which activations are held at once; 0: all.
    remat: bool = False  # Recompute blocks in the gradient.
    rounds: int = 3  # Each engine makes one update a round.
    json: bool = False  # Print the result as one JSON line.


def measure(flags: Flags) -> dict[str, Any]:
    """The result of all rounds, as it is printed."""
    if flags.rows < 1 or flags.width < 2 or not 0 <= flags.prompt < flags.width:
        raise UserError(
            f"--rows={flags.rows} --width={flags.width} --prompt={flags.prompt}: give 1 row or "
            "more, 2 tokens or more, and a prompt shorter than a row"
        )
    shape = workload.shape(flags.shape)
    names = ("rows", "width", "prompt", "microbatch", "remat")
    spec = {name: getattr(flags, name) for name in names}
    work = spec | {"shape": asdict(shape)}
    engines = {OURS: turns.Engine("benchmarks.engines.vinejax_update", work)}
    if flags.peer == "torch":
        if find_spec("torch") is None:
            raise UserError(
                "--peer is torch, which is missing: pip install -r requirements-parity.txt, "
                "or take --peer=none"
            )
        engines["torch"] = turns.Engine("benchmarks.engines.torch_update", work)
    infos, rounds = turns.take_turns(engines, flags.rounds)
    gflop = 6 * flops.matmul_parameters(model.config(shape)) / 1e9
    result: dict[str, Any] = {"benchmark": "update", "shape": flags.shape, "settings": spec}
    for name, runs in rounds.items():
        # Load on the machine lowers a measured peak, which would flatter the share.
        peak = max(run["peak_gflops"] for run in runs)
        result[name] = {
            **infos[name],
            "tokens_per_cpu_second": turns.spread(rate(run) for run in runs),
            "share_of_peak": turns.spread(rate(run) * gflop / peak for run in runs),
            "peak_gflops": peak,
            "run": sorted(runs, key=rate)[len(runs) // 2],
        }
    if flags.peer != "none":
        result["ratio"] = turns.ratio(rounds, OURS, flags.peer, rate)
    return result


def rate(run: dict[str, Any]) -> float:
    """Tokens per CPU-second of one update."""
    return run["tokens"] / run["cpu_seconds"]


def table(result: dict[str, Any]) -> str:
    """The result as lines of text."""
    lines = ["engine               tok/CPU-s (min, median, max)    MFU"]
    for name, row in result.items():
        if isinstance(row, dict) and "run" in row:
            low, middle, high = row["tokens_per_cpu_second"]
            share = row["share_of_peak"][1]
            lines.append(f"{name:<20} {low:8.1f} {middle:8.1f} {high:8.1f}   {share:7.1%}")
    if "ratio" in result:
        lines.append("ratio                " + " ".join(f"{r:8.2f}" for r in result["ratio"]))
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of the command."""
    return command.run(argv, Flags(), "update", __doc__, measure, table)


if __name__ == "__main__":
    sys.exit(main())

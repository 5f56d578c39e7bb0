"""Rollouts from prefixes: the sampler beside a peer, in turns, in useful tokens per CPU-second.

    python -m benchmarks.rollouts [--jobs=FILE] [--shape=slice6] [--peer=hf-generate] [--json]

Every engine has a process of its own with one thread, all of them on one core, and does the same
jobs: each has its prefix and the number of tokens after which it ends. Compiling and importing are
not counted. With top-p, both log-probabilities, stop rules and refills, as real runs have them; the
weights are random, and the final norm is scaled so that a nucleus is as small as a trained model's.

Peers: `hf-generate` and `hf-generate-bf16` are transformers' `generate` (they need torch), `tunix`
is google-tunix's `Sampler` (in an interpreter of its own, `--peer_python`), `static` is a loop over
static batches in JAX, `none` measures the sampler alone.

`ratio` is [min, median, max] over rounds, `share_of_peak` the useful tokens' share of what the fp32
matrix products that a token needs would take at the measured peak.
"""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from benchmarks import command, turns, workload
from benchmarks.engines import model
from vinejax.compiled import flops
from vinejax.config import UserError

PEERS = {
    "hf-generate": ("benchmarks.engines.hf_generate", {"dtype": "float32"}),
    "hf-generate-bf16": ("benchmarks.engines.hf_generate", {"dtype": "bfloat16"}),
    "tunix": ("benchmarks.engines.tunix_rollouts", {}),
    "static": ("benchmarks.engines.static_rollouts", {}),
}
OURS = "vinejax"


@dataclass(frozen=True)
class Flags:
    """What to measure."""

    jobs: Path | None = None  # JSON list of jobs; without it a list is made from --seed.
    shape: str = "slice6"  # slice6, smollm2-135m, or hidden,layers,heads,kv_heads,head_dim,ffn,V
    peer: Literal["hf-generate", "hf-generate-bf16", "tunix", "static", "none"] = "static"
    peer_python: Path | None = None  # The interpreter that has google-tunix; for --peer=tunix.
    rounds: int = 3  # Each engine runs once a round.
    slots: int = 64  # Continuations decoded at once, by both.
    peer_slots: int = 0  # Another number of them for the peer; 0: the same.
    take: int = 0  # Only so many of the jobs, evenly spread over the list; 0: all.
    peer_take: int = 0  # Only so many of them for the peer; 0: the same as the sampler.
    ordinary: str = ""  # PROMPTSxSAMPLES: whole responses to prompts in place of values, as 64x8.
    # Of the sampler's matrix products; its caches are fp32 on CPU either way.
    dtype: Literal["float32", "bfloat16"] = "float32"
    rows: int = 0  # Rows of the sampler's layout; 0: as it chooses itself.
    temperature: float = 0.6
    top_p: float = 0.9
    logit_spread: float = 4.0  # Standard deviation of the logits over the vocabulary.
    seed: int = 0  # Of the made list and of the draws.
    json: bool = False  # Print the result as one JSON line.


def measure(flags: Flags) -> dict[str, Any]:
    """The result of all rounds, as it is printed."""
    work = work_of(flags)
    shape = workload.shape(flags.shape)
    names = ("slots", "rows", "temperature", "top_p", "logit_spread", "seed")
    common = {name: getattr(flags, name) for name in names} | {"shape": asdict(shape)}
    ours = common | {"work": work.to_json(), "dtype": flags.dtype}
    engines = {OURS: turns.Engine("benchmarks.engines.vinejax_rollouts", ours)}
    python = python_of(flags)
    if flags.peer != "none":
        module, extra = PEERS[flags.peer]
        theirs = work.take(flags.peer_take).to_json()
        extra = extra | {"work": theirs, "slots": flags.peer_slots or flags.slots}
        engines[flags.peer] = turns.Engine(module, common | extra, python)
    infos, rounds = turns.take_turns(engines, flags.rounds)
    result = {
        "benchmark": "rollouts",
        "shape": flags.shape,
        "work": f"ordinary {flags.ordinary}" if flags.ordinary else "values",
        "jobs": len(work.jobs),
        "settings": {name: common[name] for name in names},
        **{name: summary(infos[name], rounds[name], shape) for name in rounds},
    }
    if flags.peer != "none":
        result["ratio"] = turns.ratio(rounds, OURS, flags.peer, rate)
    return result


def python_of(flags: Flags) -> str:
    """The peer's interpreter. Raises UserError where it lacks the peer's library."""
    if flags.peer.startswith("hf-generate") and find_spec("torch") is None:
        raise UserError(
            f"--peer is {flags.peer}, which needs torch: pip install -r "
            "requirements-parity.txt, or take --peer=static"
        )
    if flags.peer != "tunix":
        if flags.peer_python is not None:
            raise UserError(
                f"--peer_python is {flags.peer_python}, but --peer is {flags.peer}, which runs in "
                "this interpreter: leave it out, or take --peer=tunix"
            )
        return sys.executable
    remedy = "give the python of an environment with `pip install google-tunix`"
    if flags.peer_python is None:
        raise UserError(f"--peer is tunix, and --peer_python=PATH is missing: {remedy}")
    finding = "import sys; from importlib.util import find_spec; sys.exit(not find_spec('tunix'))"
    try:
        found = subprocess.run([flags.peer_python, "-c", finding], check=False)
    except OSError as error:
        raise UserError(
            f"--peer_python is {flags.peer_python}, which does not run ({error}): {remedy}"
        ) from None
    if found.returncode:
        raise UserError(f"--peer_python is {flags.peer_python}, which has no tunix: {remedy}")
    return str(flags.peer_python)


def work_of(flags: Flags) -> workload.Work:
    """The jobs that the flags ask for."""
    if flags.ordinary:
        try:
            prompts, samples = (int(word) for word in flags.ordinary.split("x"))
        except ValueError:
            raise UserError(
                f"--ordinary is {flags.ordinary!r}: give PROMPTSxSAMPLES, as 64x8"
            ) from None
        work = workload.ordinary(prompts, samples, seed=flags.seed)
    elif flags.jobs is not None:
        work = workload.read(flags.jobs)
    else:
        work = workload.values(seed=flags.seed)
    return work.take(flags.take)


def rate(result: dict[str, Any]) -> float:
    """Useful tokens per CPU-second of one run."""
    return result["useful_tokens"] / result["cpu_seconds"]


def summary(
    info: dict[str, Any], runs: list[dict[str, Any]], shape: workload.Shape
) -> dict[str, Any]:
    """Of one engine: rates as [min, median, max], phases of the median run, steps and floors."""
    middle = sorted(runs, key=rate)[len(runs) // 2]
    ideal = -(-middle["useful_tokens"] // info["slots"])
    gflop = 2 * flops.matmul_parameters(model.config(shape)) / 1e9
    # Load on the machine lowers a measured peak, which would flatter the share.
    peak = max(run["peak_gflops"] for run in runs)
    return {
        **info,
        "useful_tokens_per_cpu_second": turns.spread(rate(run) for run in runs),
        "share_of_peak": turns.spread(rate(run) * gflop / peak for run in runs),
        "peak_gflops": peak,
        "ideal_steps": ideal,
        "steps_over_bound": middle["steps"] / ideal,
        "cpu_ms_per_step": 1e3 * middle["decode_cpu_seconds"] / middle["steps"],
        "run": middle,
    }


def table(result: dict[str, Any]) -> str:
    """The result as lines of text."""
    lines = [f"{result['work']}, {result['jobs']} jobs, {result['shape']}"]
    lines.append("engine               tok/CPU-s (min, median, max)   peak   ms/step   steps/bound")
    for name, row in result.items():
        if isinstance(row, dict) and "run" in row:
            low, middle, high = row["useful_tokens_per_cpu_second"]
            share = row["share_of_peak"][1]
            lines.append(
                f"{name:<20} {low:8.1f} {middle:8.1f} {high:8.1f}      {share:7.1%}"
                f" {row['cpu_ms_per_step']:9.1f} {row['steps_over_bound']:13.2f}"
            )
    if "ratio" in result:
        lines.append("ratio                " + " ".join(f"{r:8.2f}" for r in result["ratio"]))
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of the command."""
    return command.run(argv, Flags(), "rollouts", __doc__, measure, table)


if __name__ == "__main__":
    sys.exit(main())

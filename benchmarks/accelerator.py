"""One prepared script for a GPU or TPU: the phases of an iteration apart, within ten minutes.

    python -m benchmarks.accelerator [--models rho-1.1b deepseek-7b] [--out=FILE] [--tiny]

Random weights of RhoMath-1.1B's and DeepSeekMath-7B's shapes, bf16 on an accelerator. Phases:
`sampling` (responses to prompts), `scoring` (whole trajectories, their KV kept), `values` (K
rollouts of every state from that KV), `update` (a minibatch; fp32 master weights and AdamW). Each
runs once for the compiler and then for the clock. A phase that does not fit in memory, or would
begin after --limit, is left out and says so. The result is written to --out after every phase, so
that an interrupted script leaves what it has.

`bandwidth_share` of decoding is (bytes really needed / measured copy bandwidth) / time: needed are
all weights but the embedding, each row's trunk and what the slots hold in their rings, once a step.
`mfu` of the update is the work of `vinejax.compiled.flops.update`, causal pairs alone, over what
the measured matrix-product peak would do meanwhile. Without an accelerator only --tiny makes sense.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import machine, workload
from experiments import cli
from vinejax.config import UserError

if TYPE_CHECKING:
    from benchmarks.engines.phases import Bench


@dataclass(frozen=True)
class Model:
    """A shape and how much work its phases get."""

    shape: workload.Shape
    slots: int  # continuations decoded at once
    prompts: int  # of the sampling phase, eight responses each
    trajectories: int  # scored, with the states of the values phase
    states: int
    mean: int  # tokens of a response
    width: int  # tokens of a trajectory
    minibatch: int  # rows of the update, half the width long
    microbatch: int


MODELS = {
    "rho-1.1b": Model(
        workload.Shape(2048, 22, 32, 4, 64, 5632, 32000), 512, 64, 64, 8, 256, 1024, 64, 16
    ),
    "deepseek-7b": Model(
        workload.Shape(4096, 30, 32, 32, 128, 11008, 102400), 128, 16, 32, 4, 256, 1024, 16, 4
    ),
    "tiny": Model(workload.Shape(64, 2, 4, 2, 16, 128, 512), 8, 4, 4, 2, 10, 48, 4, 2),
}


@dataclass(frozen=True)
class Flags:
    """What to measure."""

    models: tuple[str, ...] = ("rho-1.1b", "deepseek-7b")
    tiny: bool = False  # A toy model in their place, to try the script on any machine.
    limit: int = 540  # Seconds after which no further phase begins.
    k: int = 9  # Rollouts of a state.
    out: Path | None = None  # File for the result, written after every phase.
    json: bool = False  # Print the result as one JSON line.


def measure(flags: Flags) -> dict[str, Any]:
    """All phases of all models, and what the device can do at best."""
    names = ("tiny",) if flags.tiny else flags.models
    for name in names:
        if name not in MODELS:
            raise UserError(f"--models has {name!r}: choose from {', '.join(MODELS)}")
    # Here, after the choice of a compile cache.
    from benchmarks.engines import phases

    begun = time.perf_counter()
    device = phases.device(is_small=flags.tiny)
    result: dict[str, Any] = {"benchmark": "accelerator", **machine.describe(), "device": device}
    for name in names:
        report: dict[str, Any] = {}
        result[name] = report
        bench = phases.Bench(MODELS[name], device, flags.k)
        for phase, run in _phases(bench).items():
            left = flags.limit - (time.perf_counter() - begun)
            report[phase] = _guarded(run) if left > 0 else {"skipped": "no time was left"}
            print(f"{name} {phase}: {json.dumps(report[phase])}", file=sys.stderr, flush=True)
            result["seconds"] = time.perf_counter() - begun
            if flags.out is not None:
                flags.out.write_text(json.dumps(result, indent=1) + "\n")
    return result


def _phases(bench: "Bench") -> dict[str, Callable[[], dict[str, Any]]]:
    names = ("sampling", "scoring", "values", "update")
    return {name: getattr(bench, name) for name in names}


def _guarded(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a phase gives; out of memory it says so, and the others go on."""
    try:
        return run()
    except RuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return {"skipped": "out of memory: " + str(error).splitlines()[0][:200]}


def command(argv: list[str]) -> None:
    """Parse, measure, print."""
    about = (__doc__ or "").partition("\n\n")[0]
    flags = cli.parse_flags(argv, Flags(), "python -m benchmarks.accelerator", about)
    cli.use_compile_cache()
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.95")
    result = measure(flags)
    if flags.json:
        cli.print_json(result)
    else:
        print(json.dumps(result, indent=1))


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of `command`."""
    return cli.execute(command, argv)


if __name__ == "__main__":
    sys.exit(main())

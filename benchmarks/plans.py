"""The table of plans in BUILD.md: the paper's models and methods on named devices.

    python -m benchmarks.plans [--models=math_rho1b] [--topologies=h100:8] [--cache=DIR] [--json]

Each cell is one `experiments.plan` in a process of its own, since a compiler is told its platform
when it is loaded. Plans that were made before come from the cache. Seconds are estimates.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments import cli
from vinejax.config import UserError
from vinejax.report.comparison import markdown

HEAD = (
    *("model", "method", "devices", "data x fsdp x tensor", "rows, remat", "slots, wave"),
    *("sampling", "update", "critic", "fits", "s an iteration"),
)
# Bytes of the critic's gradient a parameter, held while it is updated.
GRADIENT = 4


@dataclass(frozen=True)
class Flags:
    """Which plans."""

    models: tuple[str, ...] = ("math_rho1b", "math_deepseekmath7b")  # Configurations.
    methods: tuple[str, ...] = ("vineppo", "ppo")  # Algorithms.
    topologies: tuple[str, ...] = ("a100-80gb:4", "h100:8", "v5p:2x2x2", "v5e:8x8")  # Devices.
    cache: str | None = None  # As in experiments.plan.
    json: bool = False  # Print the plans as one JSON line.


def plan(model: str, method: str, topology: str, cache: str | None) -> dict[str, Any]:
    """One plan. Raises UserError with what the command said if it made none."""
    words = [f"--config={model}", f"--config.algorithm={method}", f"--topology={topology}"]
    words += ["--json"] + ([] if cache is None else [f"--cache={cache}"])
    command = [sys.executable, "-m", "experiments.plan", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (cli.DONE, cli.TOO_LARGE):
        raise UserError(f"{' '.join(words)}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def row(made: dict[str, Any]) -> list[str]:
    """A plan as a row of the table; memory in GB and as a share of the device's."""
    mesh, engine, phases = made["mesh"], made["engine"], made["phases"]
    rest = devices(made["topology"]) // (mesh["fsdp"] * mesh["tensor"])
    data = rest if mesh["data"] == -1 else mesh["data"]

    def memory(name: str) -> str:
        if name not in phases:
            return ""
        return f"{phases[name]['total'] / 1e9:.1f} ({phases[name]['share']:.0%})"

    return [
        made["config"],
        made["algorithm"],
        made["topology"],
        f"{data} x {mesh['fsdp']} x {mesh['tensor']}",
        f"{made['microbatch']}, {made['remat']}",
        f"{engine['rows']} x {engine['slots']}, {engine['wave']}",
        *(memory(name) for name in ("sampling", "update", "critic")),
        "yes" if made["fits"] else "no",
        f"{made['estimated_seconds_an_iteration']:.0f}",
    ]


def table(plans: Sequence[dict[str, Any]]) -> str:
    """All plans, and below them what VinePPO saves."""
    lines = [markdown(HEAD, [row(made) for made in plans]), ""]
    for made in plans:
        saved = of_critic(made)
        if saved:
            total = f"{sum(saved) / 1e9:.0f} GB ({saved[0] / 1e9:.0f} GB of them all the time)"
            lines.append(
                f"- {made['config']} on {made['topology']}: without PPO's critic, {total} less "
                "over all devices."
            )
    return "\n".join(lines)


def of_critic(made: dict[str, Any]) -> tuple[float, float] | None:
    """Bytes over all devices of the critic's weights and moments, and of its gradient."""
    held = next(iter(made["phases"].values()))["memory"]
    if "critic" not in held:
        return None
    mesh = made["mesh"]
    shards = mesh["fsdp"] * mesh["tensor"]
    # One copy: what the data axis repeats is no part of what a critic needs.
    return (held["critic"] + held["critic optimizer"]) * shards, GRADIENT * (
        held["critic"] // 4
    ) * shards


def devices(topology: str) -> int:
    """How many a name has."""
    from vinejax.compiled import topology as names

    return names.parse(topology).count


def command(argv: list[str]) -> None:
    """Plan by plan, then the table."""
    about = (__doc__ or "").partition("\n\n")[0]
    flags = cli.parse_flags(argv, Flags(), "python -m benchmarks.plans", about)
    plans = []
    for model in flags.models:
        for topology in flags.topologies:
            for method in flags.methods:
                print(f"{model} {method} {topology}", file=sys.stderr, flush=True)
                plans.append(plan(model, method, topology, flags.cache))
    if flags.json:
        cli.print_json({"benchmark": "plans", "plans": plans})
    else:
        print(table(plans))


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of `command`."""
    return cli.execute(command, argv)


if __name__ == "__main__":
    sys.exit(main())

"""A configuration compiled for devices that are not there: does it fit, and what does it take?

    python -m experiments.plan --config=math_rho1b --topology=a100-80gb:4 [--config.FIELD=VALUE]

Needs no data, no weights and no device: the compilers for NVIDIA (jax[cuda12]) and for TPUs
(jax[tpu]) work without. Memory is what the compilers report, on each device. Seconds are estimates
from the makers' peaks, never measurements. Exit code 3: it does not fit, with what to change.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import cli
from vinejax.config import Config, ConfigError

SUFFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class Flags:
    """What to plan for."""

    topology: str = ""  # a100-80gb:4, h100:8, h200:1, v4:2x2x1, v5e:8x8, v5p:2x2x2, v6e:4x4, ...
    shape: str | None = None  # rho1b, deepseekmath7b or numbers; None = the configuration's model.
    prompt_tokens: int = 200  # Mean of a prompt, for the estimated seconds.
    response_tokens: int = 350  # Mean of a response, likewise.
    states: int = 12  # Mean number of a response's states, likewise.
    # Folder of what was compiled before; None = $XDG_CACHE_HOME/vinejax/plan, or in ~/.cache.
    cache: str | None = None
    # How hard the compiler tries, from -1 to 1. At 0 a TPU's takes many times as long, for programs
    # that take about as much memory.
    effort: float = -1.0
    json: bool = False  # Print the result as one JSON line.


def make(config: Config, flags: Flags) -> dict[str, Any]:
    """The plan as `train.plan.as_dict` gives it. Raises UserError for bad input."""
    from vinejax import policy, tasks
    from vinejax.compiled import topology
    from vinejax.train import algorithms, plan

    if not flags.topology:
        raise ConfigError("--topology is missing: write it like h100:8 or v5p:2x2x2")
    wanted = topology.parse(flags.topology)
    config.validate(tasks.names(), algorithms.names())
    lengths = plan.Lengths(flags.prompt_tokens, flags.response_tokens, flags.states)
    with policy.targeting(wanted.device.platform):
        from experiments import shapes

        model = shapes.find(config, flags.shape)
        made = plan.make(
            config,
            model,
            wanted,
            folder=_folder(flags.cache),
            effort=flags.effort,
            lengths=lengths,
            note=lambda name: print(f"compiling: {name}", file=sys.stderr, flush=True),
        )
    return plan.as_dict(made)


def _folder(given: str | None) -> Path:
    if given is not None:
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "vinejax" / "plan"


def remedy(result: dict[str, Any]) -> str:
    """What to change where a plan does not fit: the largest term that a field can make smaller."""
    phase = result["phases"][result["largest_phase"]]
    name, size = max(phase["memory"].items(), key=lambda item: item[1])
    mesh = result["mesh"]
    more = "take more devices"
    split = f"raise mesh.fsdp (now {mesh['fsdp']}) or {more}"
    advice = {
        "parameters": split,
        "optimizer": f"{split}, or set update.first_moment to bfloat16",
        "critic": f"{split}, or take vineppo, which has no critic",
        "critic optimizer": f"{split}, or take vineppo, which has no critic",
        "policy copy": f"raise mesh.tensor (now {mesh['tensor']})",
        "reference": f"raise mesh.tensor (now {mesh['tensor']})",
        "KV": f"lower engine.wave (now {result['engine']['wave']}) or engine.slots "
        f"(now {result['engine']['slots']})",
        "temporaries": f"lower update.microbatch (now {result['microbatch']}), or set policy.remat "
        f"to block (now {result['remat']})",
    }
    advice["program"] = advice["temporaries"] + ", or raise mesh.tensor"
    return (
        f"{result['largest_phase']} needs {short(phase['total'])}B of "
        f"{short(result['device_memory'])}B; the largest part is {name}, {short(size)}B: "
        f"{advice.get(name, more)}"
    )


def short(number: float) -> str:
    """12345678 -> 12.3 M; decimal units."""
    for size, suffix in SUFFIXES:
        if abs(number) >= size:
            return f"{number / size:.1f} {suffix}"
    return f"{number:.0f} "


def show(result: dict[str, Any]) -> str:
    """The plan as text."""
    lines = [
        f"{result['config']} ({result['algorithm']}) on {result['topology']}, "
        f"{short(result['device_memory'])}B a device",
        "",
    ]
    lines += [f"  {name} = {why}" for name, why in result["chosen"].items()]
    for name, phase in result["phases"].items():
        lines += ["", _headline(name, phase)]
        parts = sorted(phase["memory"].items(), key=lambda item: -item[1])
        lines.append("    " + ", ".join(f"{k} {short(v)}B" for k, v in parts))
        if phase["program"] is None:
            lines.append("    not compiled: what is listed is too much already")
            continue
        program, seconds = phase["program"], phase["estimated_seconds_at_peak"]
        sent = ", ".join(
            f"{kind} {n['count']} x, {short(n['bytes'])}B" for kind, n in program["sent"].items()
        )
        taken = "from the cache" if program["cached"] else "compiled"
        lines += [
            f"    program {program['hash']}, {taken} ({program['seconds']:.0f} s); "
            f"sends {sent or 'nothing'}",
            f"    an iteration, estimated: {short(phase['flops'])}FLOP {seconds['flops']:.1f} s, "
            f"memory {short(phase['bytes_moved'])}B {seconds['memory']:.1f} s, "
            f"links {short(phase['bytes_sent'])}B {seconds['link']:.1f} s",
        ]
    lines += [
        "",
        f"Estimated: {result['estimated_seconds_an_iteration']:.0f} s an iteration, "
        f"{result['estimated_tokens_sampled_a_second']:.0f} tokens sampled a second.",
        "Fits." if result["fits"] else f"Does not fit: {remedy(result)}",
    ]
    return "\n".join(lines)


def _headline(name: str, phase: dict[str, Any]) -> str:
    return (
        f"  {name}, on {phase['devices']} device{'s' * (phase['devices'] > 1)}: "
        f"{short(phase['total'])}B, {phase['share']:.0%} of a device"
    )


def command(argv: list[str]) -> int:
    """Parse, compile, print."""
    about = (__doc__ or "").partition("\n\n")[0]
    config, flags = cli.parse(argv, Flags(), "python -m experiments.plan", about)
    # The host computes nothing here; without this JAX would look for the device.
    os.environ["JAX_PLATFORMS"] = "cpu"
    result = make(config, flags)
    if flags.json:
        cli.print_json(result)
    else:
        print(show(result))
    if not result["fits"]:
        print(f"does not fit: {remedy(result)}", file=sys.stderr)
    return cli.DONE if result["fits"] else cli.TOO_LARGE


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of `command`."""
    return cli.execute(command, argv)


if __name__ == "__main__":
    sys.exit(main())

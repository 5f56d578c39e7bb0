"""Whether the device waits for Python: the share of an iteration in which a program is at work.

    python -m experiments.run --config=tiny --profile=10 --out=DIR
    python -m benchmarks.busy --profile=DIR/profile [--json]

Reads the newest profile of the folder. `busy` is the time in which at least one compiled program
runs, over the iteration's; `waits` are the longest stretches without one, with the phase (the name
under time/ in metrics.jsonl) that they fall into. On a CPU programs share the cores with Python and
the graders, so a wait there is also time in which those have the core.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from benchmarks import command
from vinejax.config import UserError

ITERATION = "iteration"
# The phases of an iteration, as `train.clock` names them.
PHASES = (
    "weights",
    "trajectories",
    "grading",
    "scoring",
    "values",
    "reference",
    "update",
    "critic",
)
IDLE = ("wait", "Await", "Threadpool", "end:")  # in events of a CPU's threads that run nothing
Span = tuple[float, float]  # begin and end, ns


@dataclass(frozen=True)
class Flags:
    """What to read."""

    profile: Path | None = None  # Folder that `--profile` of experiments.run has written.
    longest: int = 5  # So many waits are listed.
    json: bool = False  # Print the result as one JSON line.


def measure(flags: Flags) -> dict[str, Any]:
    """Shares of the iteration, and the longest waits."""
    if flags.profile is None:
        raise UserError("--profile is missing: give the folder OUT/profile of a profiled run")
    files = sorted(flags.profile.rglob("*.xplane.pb"))
    if not files:
        raise UserError(f"--profile is {flags.profile}, which holds no *.xplane.pb file")
    spans, programs = _read(jax.profiler.ProfileData.from_file(str(files[-1])))
    if ITERATION not in spans:
        raise UserError(f"{files[-1]} has no iteration: take it by --profile of experiments.run")
    whole = spans[ITERATION][0]
    at_work = [clip(span, whole) for span in union(programs) if overlap(span, whole) > 0]
    waits = between(at_work, whole)
    waits.sort(key=lambda span: span[0] - span[1])
    return {
        "benchmark": "busy",
        "iteration_ms": (whole[1] - whole[0]) / 1e6,
        "busy": sum(b - a for a, b in at_work) / (whole[1] - whole[0]),
        "busy_by_phase": {
            name: _busy(found, at_work) for name, found in spans.items() if name != ITERATION
        },
        "waits": [
            {"ms": (b - a) / 1e6, "at_ms": (a - whole[0]) / 1e6, "phase": _phase((a, b), spans)}
            for a, b in waits[: flags.longest]
        ],
    }


def _read(profile: Any) -> tuple[dict[str, list[Span]], list[Span]]:
    """The phases of the iteration by name, and when programs ran."""
    spans: dict[str, list[Span]] = {}
    programs: list[Span] = []
    for plane in profile.planes:
        for line in plane.lines:
            for event in line.events:
                span = (event.start_ns, event.start_ns + event.duration_ns)
                if event.name in (ITERATION, *PHASES):
                    spans.setdefault(event.name, []).append(span)
                elif _is_program(plane.name, line.name, event.name):
                    programs.append(span)
    return spans, programs


def _is_program(plane: str, line: str, event: str) -> bool:
    """Whether an event is (part of) a compiled program at work."""
    if plane.startswith("/device:"):
        return line == "XLA Modules" or line.startswith("Stream")
    return line.startswith("tf_XLA") and not any(word in event for word in IDLE)


def union(spans: Iterable[Span]) -> list[Span]:
    """The same time as spans that do not overlap, in order."""
    out: list[Span] = []
    for begin, end in sorted(spans):
        if out and begin <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((begin, end))
    return out


def between(spans: Sequence[Span], whole: Span) -> list[Span]:
    """What ordered spans that do not overlap leave of `whole`."""
    ends = [whole[0], *(end for _, end in spans)]
    begins = [*(begin for begin, _ in spans), whole[1]]
    return [(end, begin) for end, begin in zip(ends, begins, strict=True) if begin > end]


def overlap(one: Span, other: Span) -> float:
    """Time that two spans have in common."""
    return min(one[1], other[1]) - max(one[0], other[0])


def clip(span: Span, whole: Span) -> Span:
    """The part of a span that is in `whole`."""
    return max(span[0], whole[0]), min(span[1], whole[1])


def _busy(found: Sequence[Span], at_work: Sequence[Span]) -> float:
    shared = sum(max(0.0, overlap(a, b)) for a in found for b in at_work)
    return shared / sum(end - begin for begin, end in found)


def _phase(wait: Span, spans: dict[str, list[Span]]) -> str:
    """The phase that has most of the wait; none between phases."""
    shares = {
        name: sum(max(0.0, overlap(wait, span)) for span in found)
        for name, found in spans.items()
        if name != ITERATION
    }
    name = max(shares, key=lambda n: shares[n], default="")
    return name if name and shares[name] > 0 else "between phases"


def table(result: dict[str, Any]) -> str:
    """The result as lines of text."""
    lines = [f"iteration {result['iteration_ms']:.0f} ms, a program at work {result['busy']:.1%}"]
    lines += [f"  {name:<14} {share:6.1%}" for name, share in result["busy_by_phase"].items()]
    lines.append("longest waits")
    lines += [
        f"  {wait['ms']:8.2f} ms at {wait['at_ms']:8.0f} ms  {wait['phase']}"
        for wait in result["waits"]
    ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of the command."""
    return command.run(argv, Flags(), "busy", __doc__, measure, table)


if __name__ == "__main__":
    sys.exit(main())

"""Worker: the sampler on several lists of jobs, one after the other in every round."""

from typing import Any

from benchmarks import machine, turns
from benchmarks.engines import vinejax_rollouts


def prepare(spec: dict[str, Any]) -> turns.Prepared:
    """One prepared sampler for each of `points`, which add to what they have in common."""
    common = {name: value for name, value in spec.items() if name != "points"}
    prepared = {
        name: vinejax_rollouts.prepare(common | point) for name, point in spec["points"].items()
    }

    def run() -> dict[str, Any]:
        out = {}
        for name, one in prepared.items():
            before = machine.cpu_seconds()
            facts = one.run()
            out[name] = facts | {"cpu_seconds": machine.cpu_seconds() - before}
        return {"points": out}

    first = next(iter(prepared.values()))
    info = {name: first.info[name] for name in ("engine", "dtype", "machine", "versions")}
    return turns.Prepared(info, run, first.product)


if __name__ == "__main__":
    turns.serve(prepare)

"""What an iteration takes on devices that are not there: memory by phase, traffic, estimates.

Every program of the iteration is lowered from shapes and compiled for the devices that are named.
Memory is the compiler's count of arguments, temporaries and code, and what else a device holds
while the phase runs, by its sharded shapes. Floating-point operations follow from formulas, bytes
from the compiled text. Seconds are estimates, never measurements.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vinejax import policy, sharding
from vinejax.compiled import topology as topologies
from vinejax.compiled.topology import Topology
from vinejax.config import Config, ConfigError
from vinejax.train import fit
from vinejax.train.programs import Lengths, Phase, Programs

ALGORITHMS = ("vineppo", "ppo", "grpo", "rloo")
REACHED = 0.5  # of the roofline that programs are assumed to reach


@dataclass(frozen=True)
class Plan:
    """All phases of a configuration on named devices."""

    config: Config  # without fields that are to be chosen
    model: policy.LlamaConfig
    topology: Topology
    reasons: dict[str, str]
    phases: tuple[Phase, ...]

    @property
    def fits(self) -> bool:
        """Whether every phase fits a device."""
        return all(p.total <= self.topology.device.memory for p in self.phases)

    @property
    def largest(self) -> Phase:
        """The phase that needs most memory."""
        return max(self.phases, key=lambda p: p.total)

    @property
    def seconds(self) -> float:
        """Estimate of an iteration, host work left out."""
        return sum(p.roofline(self.topology) for p in self.phases) / REACHED


def make(
    config: Config,
    model: policy.LlamaConfig,
    topology: Topology,
    *,
    folder: Path | None = None,
    effort: float = 0.0,
    lengths: Lengths | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> Plan:
    """The plan; under `policy.targeting` of the topology's platform.

    Raises ConfigError for a method that it does not know, or sizes that do not divide, and
    UserError where the compiler is missing.
    """
    if config.algorithm not in ALGORITHMS:
        raise ConfigError(
            f"algorithm is {config.algorithm!r}: a plan knows {', '.join(ALGORITHMS)}"
        )
    machine = fit.Machine(topology.count, topology.device.memory, per_process(topology))
    found = fit.fit(config, model, machine)
    config = found.config
    model = fit.model_of(config, model)
    devices = topologies.describe(topology)
    shard = topologies.describe(topology.part(config.mesh.tensor))
    programs = Programs(config, model, topology, devices, shard, lengths or Lengths())
    sharding.check_batch(config.update.microbatch, programs.mesh, "update.microbatch")
    made = []
    for build in programs.phases():
        note(build.name)
        made.append(build.made(folder, effort))
    return Plan(config, model, topology, found.reasons, tuple(made))


def per_process(topology: Topology) -> int:
    """Devices of a machine: 8 GPUs, or 4 chips of a slice."""
    return min(topology.count, 8 if topology.device.platform == "gpu" else 4)


def as_dict(plan: Plan) -> dict[str, Any]:
    """The plan as JSON has it; seconds are estimates."""
    memory = plan.topology.device.memory
    return {
        "topology": str(plan.topology),
        "config": plan.config.name,
        "algorithm": plan.config.algorithm,
        "mesh": asdict(plan.config.mesh),
        "engine": asdict(plan.config.engine),
        "microbatch": plan.config.update.microbatch,
        "remat": plan.model.remat,
        "attention": [plan.model.attention, plan.model.decode_attention],
        "chosen": plan.reasons,
        "device_memory": memory,
        "fits": plan.fits,
        "largest_phase": plan.largest.name,
        "largest_bytes": plan.largest.total,
        "phases": {p.name: _phase(p, plan.topology) for p in plan.phases},
        "estimated_seconds_an_iteration": plan.seconds,
        "estimated_tokens_sampled_a_second": plan.phases[0].tokens / plan.seconds,
    }


def _phase(phase: Phase, topology: Topology) -> dict[str, Any]:
    return {
        "devices": phase.devices,
        "memory": phase.memory,
        "total": phase.total,
        "share": phase.total / topology.device.memory,
        "program": None if phase.facts is None else asdict(phase.facts),
        "tokens": phase.tokens,
        "flops": phase.flops,
        "bytes_moved": phase.moved,
        "bytes_sent": phase.sent,
        "estimated_seconds_at_peak": phase.seconds(topology),
        "estimated_seconds_roofline": phase.roofline(topology),
    }

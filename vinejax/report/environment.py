"""Where a run's numbers come from: versions, flags, devices, and the commit of the code."""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    "vinejax", "jax", "jaxlib", "numpy", "scipy", "optax", "flax", "orbax-checkpoint", "chex",
    "jaxtyping", "tensorstore", "safetensors", "transformers", "tokenizers", "sentencepiece",
    "datasets", "sympy", "math-verify", "pebble", "rich", "tensorboardX", "jax-cuda12-plugin",
    "jax-cuda13-plugin", "libtpu",
)  # fmt: skip
# Settings of JAX that change numbers or keys.
SETTINGS = (
    "jax_enable_x64", "jax_default_matmul_precision", "jax_default_prng_impl",
    "jax_threefry_partitionable",
)  # fmt: skip
FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "CUDA_VISIBLE_DEVICES", "NVIDIA_TF32_OVERRIDE")


def environment() -> dict[str, Any]:
    """JSON of `environment.json`. Names no host and no user; without git, `git` is None."""
    # Reading the files of a run needs no JAX, so this module does not import it.
    import jax

    devices = jax.devices()
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "flags": {
            name: value
            for name, value in sorted(os.environ.items())
            if name in FLAGS or (name.startswith("JAX_") and "ADDRESS" not in name)
        },
        "settings": {name: getattr(jax.config, name, None) for name in SETTINGS},
        "devices": {
            "platform": devices[0].platform,
            "kind": devices[0].device_kind,
            "count": len(devices),
            "processes": jax.process_count(),
        },
        "git": _git(Path(__file__).resolve().parents[2]),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git(root: Path) -> dict[str, Any] | None:
    """The commit that `root` is at, and whether its code differs from it."""
    try:
        # Installed below someone else's repository, the commit would be that one's.
        if Path(_ask_git(root, "rev-parse", "--show-toplevel")).resolve() != root:
            return None
        commit = _ask_git(root, "rev-parse", "HEAD")
        changed = _ask_git(root, "status", "--porcelain", "--", "vinejax", "experiments")
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "dirty": bool(changed)}


def _ask_git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()

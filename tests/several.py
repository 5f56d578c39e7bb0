"""Several processes of this machine as one run: how tests start them, and what they do there.

`python -m tests.several SCENARIO --coordinator=... --process_id=I --processes=N ARGUMENT...` is one
of them; it fails by an assertion.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]


def start(
    count: int, module: str, *arguments: str, devices: int = 1, own: Sequence[str] = ()
) -> list[subprocess.Popen[str]]:
    """Starts `count` processes of a module that takes the flags of experiments.run.

    Of `own`, each gets one argument more.
    """
    flag = f"--xla_force_host_platform_device_count={devices}"
    where = f"--coordinator=127.0.0.1:{_free_port()}"
    return [
        subprocess.Popen(
            [
                *(sys.executable, "-m", module, *arguments),
                *own[i : i + 1],
                *(where, f"--process_id={i}", f"--processes={count}"),
            ],
            cwd=ROOT,
            env=os.environ | {"XLA_FLAGS": flag, "JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for i in range(count)
    ]


def ends(running: Sequence[subprocess.Popen[str]], timeout: float) -> list[tuple[int, str]]:
    """Exit code and output of each; those that still run after `timeout` seconds are killed."""
    latest, found = time.monotonic() + timeout, []
    try:
        for process in running:
            output, _ = process.communicate(timeout=max(0.1, latest - time.monotonic()))
            found.append((process.returncode, output))
    finally:
        for process in running:
            process.kill()
    return found


def finish(count: int, module: str, *arguments: str, timeout: float = 600, **settings: Any) -> None:
    """`start`, and success of all."""
    for code, output in ends(start(count, module, *arguments, **settings), timeout):
        assert code == 0, output


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# --- in the processes ---------------------------------------------------------------------------


def telling() -> None:
    """All that processes tell each other comes to all, in their order."""
    from vinejax import processes
    from vinejax.config import UserError

    own, count = processes.index(), processes.count()
    text = {"own": "ü" * 3000 * own, "number": own}
    told = processes.tell(text)
    assert [t["number"] for t in told] == list(range(count))
    assert told[own] == text
    rows = {
        "a": np.full((own, 2), own, np.float32),
        "b": np.arange(own + 1),
        "c": np.array([0.1 + own]),
    }
    joined = processes.join(rows)
    assert joined["a"].shape == (sum(range(count)), 2)
    assert joined["a"].dtype == np.float32
    assert joined["b"].tolist() == [x for i in range(count) for x in range(i + 1)]
    assert joined["c"].tolist() == [0.1 + i for i in range(count)]
    assert processes.on_first(lambda: {"from": processes.index()}) == {"from": 0}
    assert processes.first_of("second" if own else None) == "second"
    assert processes.first_of(None) is None
    for ask, failing in ((processes.on_first, 0), (processes.together, count - 1)):
        with pytest.raises(UserError, match="no such thing"):
            ask(lambda failing=failing: _refuse() if processes.index() == failing else 1)
    processes.meet()


def _refuse() -> None:
    from vinejax.config import UserError

    raise UserError("no such thing")


def restoring(folder: str, expected: str) -> None:
    """The newest state in a folder of checkpoints, on a mesh of all devices, is the expected one.

    It is saved again from here, too.
    """
    import jax
    from jax.experimental import multihost_utils

    from tests.states import digests, state_on
    from vinejax import processes, sharding
    from vinejax.checkpoint import Checkpoints

    mesh = sharding.make_mesh(1, jax.device_count(), 1)
    with Checkpoints(folder, keep=2) as checkpoints:
        found = checkpoints.restore_latest(state_on(mesh, seed=1))
        assert found is not None
        step, state, meta = found
        whole = multihost_utils.process_allgather(
            jax.tree.map(lambda x: jax.random.key_data(x) if _is_key(x) else x, state), tiled=True
        )
        assert digests(whole) == json.loads(expected)
        assert meta == {"order": [3, 1, 2]}
        checkpoints.delete_after(step)
        checkpoints.save(step + 1, state, meta)
    processes.meet()


def _is_key(x: Any) -> bool:
    import jax

    return jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key)


if __name__ == "__main__":
    words = dict(word[2:].split("=", 1) for word in sys.argv[2:] if word.startswith("--"))
    from vinejax import processes

    processes.connect(words["coordinator"], int(words["process_id"]), int(words["processes"]))
    globals()[sys.argv[1]](*(word for word in sys.argv[2:] if not word.startswith("--")))

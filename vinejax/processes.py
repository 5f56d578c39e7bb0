"""Several processes as one run: how they find each other, and what they tell each other.

The data flow of an iteration over P processes with D devices each:

    every process   reads data and configuration, chooses the iteration's prompts (the seed does)
    every device    takes a contiguous share of the prompts: samples, scores, grows vines
                    (`train.shards`; a job's key comes from its tokens, so no share matters)
    every process   grades the shares of its own devices, with workers and a journal of its own
    join            tokens, log-probabilities, grades, values: NumPy columns of all processes in the
                    order of the prompts, so that all hold the same trajectories and credit
    update          one program over the whole mesh; a process hands its devices their rows
    process 0       writes metrics, rollouts, summary; checkpoints are written by all (Orbax)

Control flow must not differ between processes. What could make it differ (files that are there or
not, a signal) is read by one and told to all: `on_first`, `first_of`. Only one thread calls these
functions. A process that dies ends the others: a collective fails at once where its connection
breaks, and JAX's coordination service ends what still waits after `HEARTBEAT` seconds.
"""

import contextlib
import io
import json
import os
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

import jax
import numpy as np
from jax.experimental import multihost_utils

from vinejax.config import ConfigError, Preempted, UserError
from vinejax.files import plain

HEARTBEAT = 60  # seconds without a sign of life until a process counts as lost
SHUTDOWN = 60  # seconds that a process which has ended waits for the others
CONNECT = 300  # seconds until all must have come

T = TypeVar("T")
Columns = Mapping[str, np.ndarray]


def connect(
    coordinator: str | None = None,
    process_id: int | None = None,
    processes: int | None = None,
    cluster: bool = False,
) -> None:
    """Joins this process with the others of its run; call before JAX computes anything.

    With all three of `coordinator` (HOST:PORT of process 0), `process_id` and `processes`; or as
    JAX reads them from the cluster, where `launched` sees several processes or `cluster` says so.
    Does nothing for a single process. Raises ConfigError for flags that are incomplete, and
    UserError if the others do not come.
    """
    given = (coordinator, process_id, processes)
    where: dict[str, Any] = {}
    if any(value is not None for value in given):
        where = _checked(*given)
        if processes == 1:
            return
    elif not (cluster or launched(os.environ)):
        return
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            **where,
            initialization_timeout=CONNECT,
            heartbeat_timeout_seconds=HEARTBEAT,
            shutdown_timeout_seconds=SHUTDOWN,
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"the processes could not be connected: {str(error).splitlines()[0]}; start all of "
            "them with the same --coordinator and --processes, and a --process_id each"
        ) from error


def _checked(
    coordinator: str | None, process_id: int | None, processes: int | None
) -> dict[str, Any]:
    """The flags as JAX takes them."""
    flags = {"coordinator": coordinator, "process_id": process_id, "processes": processes}
    missing = [f"--{name}" for name, value in flags.items() if value is None]
    if coordinator is None or process_id is None or processes is None:
        raise ConfigError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing: several "
            "processes need --coordinator=HOST:PORT, --process_id=I and --processes=N"
        )
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ConfigError(
            f"--coordinator is {coordinator!r}: give HOST:PORT of process 0, like node1:9911"
        )
    if processes < 1:
        raise ConfigError(f"--processes is {processes}: give how many there are, 1 or more")
    if not 0 <= process_id < processes:
        raise ConfigError(
            f"--process_id is {process_id}: with --processes={processes} it is one of 0 to "
            f"{processes - 1}"
        )
    return {
        "coordinator_address": coordinator,
        "num_processes": processes,
        "process_id": process_id,
    }


def launched(environment: Mapping[str, str]) -> bool:
    """Whether srun started several tasks, or GKE gave a TPU slice of several hosts to this job."""
    tasks = environment.get("SLURM_NTASKS", "1")
    by_srun = "SLURM_STEP_NODELIST" in environment and "SLURM_PROCID" in environment
    hosts = environment.get("TPU_WORKER_HOSTNAMES", "")
    return (by_srun and tasks.isdigit() and int(tasks) > 1) or "," in hosts


@contextlib.contextmanager
def failing_fast() -> Iterator[None]:
    """Ends this process, with a message and exit code 1, when something inside fails unexpectedly.

    A failing collective is how the loss of another process is noticed. An ordinary exit would wait
    for the others, which wait for this one. A single process just has the exception.
    """
    try:
        yield
    except (UserError, Preempted):
        raise
    except Exception as error:
        if count() == 1:
            raise
        traceback.print_exc()
        reason = (str(error).splitlines() or [""])[0]
        print(
            f"failed: process {index()} stops: {type(error).__name__}: {reason}; if another "
            "process was lost, its own output says why; start all again with --resume",
            file=sys.stderr,
            flush=True,
        )
        os._exit(1)


def count() -> int:
    """How many processes the run has."""
    return jax.process_count()


def index() -> int:
    """The number of this one, from 0."""
    return jax.process_index()


def is_first() -> bool:
    """Whether this process writes the run's files."""
    return index() == 0


def neighbours() -> int:
    """How many processes of the run are on this machine and share its cores, this one included."""
    return tell(socket.gethostname()).count(socket.gethostname())


def gather(columns: Columns) -> list[Columns]:
    """The columns of every process, in the order of their numbers."""
    if count() == 1:
        return [columns]
    packed = io.BytesIO()
    own: dict[str, Any] = {name: np.asarray(column) for name, column in columns.items()}
    np.savez(packed, **own)
    found = []
    for data in _exchange(packed.getvalue()):
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            found.append({name: arrays[name] for name in arrays.files})
    return found


def join(columns: Columns) -> dict[str, np.ndarray]:
    """Each column of all processes, one behind the other along its first axis."""
    parts = gather(columns)
    if len(parts) == 1:
        return dict(columns)
    return {name: np.concatenate([part[name] for part in parts]) for name in columns}


def tell(value: T) -> list[T]:
    """The `value` of every process, in the order of their numbers; it has a JSON form."""
    if count() == 1:
        return [value]
    return [json.loads(data) for data in _exchange(json.dumps(value).encode())]


def on_first(function: Callable[[], T]) -> T:
    """What `function` gives on process 0, which alone calls it; it has a JSON form.

    A UserError that it raises is raised on all.
    """
    if count() == 1:
        return function()
    told, error = b"", None
    if is_first():
        try:
            told = json.dumps({"value": plain(function())}).encode()
        except UserError as found:
            told, error = json.dumps({"error": str(found)}).encode(), found
    heard = json.loads(_exchange(told)[0])
    if error is not None:
        raise error
    if "error" in heard:
        raise UserError(heard["error"])
    return heard["value"]


def together(function: Callable[[], T]) -> T:
    """What `function` gives; if it raises a UserError on any process, all raise one."""
    if count() == 1:
        return function()
    result, error = None, None
    try:
        result = function()
    except UserError as found:
        error = found
    heard = _exchange(b"" if error is None else str(error).encode())
    if error is not None:
        raise error
    for number, text in enumerate(heard):
        if text:
            raise UserError(f"in process {number}: {text.decode()}")
    return cast(T, result)


def first_of(text: str | None) -> str | None:
    """The `text` of the first process that has one: the same answer for all."""
    if count() == 1:
        return text
    return next((t.decode() for t in _exchange((text or "").encode()) if t), None)


def meet() -> None:
    """Returns when all processes have come here."""
    if count() > 1:
        _exchange(b"")


def _exchange(data: bytes) -> list[bytes]:
    """The bytes of every process."""
    sizes = multihost_utils.process_allgather(np.array(len(data), np.uint32)).reshape(-1)
    # Powers of two, since a program is compiled for every size.
    width = 1 << max(8, (int(sizes.max()) - 1).bit_length())
    padded = np.zeros(width, np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    rows = multihost_utils.process_allgather(padded)
    return [row[:size].tobytes() for row, size in zip(rows, sizes.tolist(), strict=True)]

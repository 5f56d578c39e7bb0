"""What a grading worker may do, beyond its CPU time: little memory, no large files, no network and
no processes of its own.

Graders parse what a model wrote. They are built so as not to execute it; these limits are the
second line, should that fail, and they bound what an odd formula may cost.

  memory       MEMORY more than at the start, else MemoryError          Linux (RLIMIT_DATA)
  file size    FILE_SIZE, logs included, else OSError                   Linux, macOS (RLIMIT_FSIZE)
  network      a network namespace without interfaces                   Linux, where the kernel lets
                                                                        the user make one
  network      PermissionError on connecting, binding, sending          everywhere
  processes    PermissionError on forking, spawning and executing       everywhere, unless the task
                                                                        says that it runs programs

The last two are an audit hook, which Python code cannot remove, but native code does not ask. The
number of processes is not limited by the kernel (RLIMIT_NPROC), whose limit is per user, counts
threads and spares root. A limit that cannot be set is left out, as on other systems than these. A
program that a worker runs inherits the first three.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Collection
from functools import partial
from pathlib import Path

MEMORY = 2 << 30  # bytes
FILE_SIZE = 64 << 20  # bytes

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000  # CLONE_ flags; os.unshare is Python 3.12
_NETWORK = (
    "socket.bind", "socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendmsg",
    "socket.sendto",
)  # fmt: skip
_PROCESSES = (
    "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.startfile", "os.system",
    "pty.spawn", "subprocess.Popen",
)  # fmt: skip


def confine(runs_programs: bool = False) -> None:
    """Sets all limits on this process, for good; with `runs_programs` it may start others."""
    _limit_resources()
    _leave_network()
    refused = frozenset(_NETWORK if runs_programs else _NETWORK + _PROCESSES)
    sys.addaudithook(partial(_refuse, refused))


def _limit_resources() -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
        if sys.platform == "linux":
            status = Path("/proc/self/status").read_text()
            used = int(status.partition("VmData:")[2].split()[0]) << 10
            resource.setrlimit(resource.RLIMIT_DATA, (used + MEMORY, used + MEMORY))


def _leave_network() -> None:
    """As root directly; otherwise in a user namespace, which only a process of one thread may
    enter."""
    if sys.platform != "linux":
        return
    unshare = ctypes.CDLL(None).unshare
    if os.geteuid() != 0 or unshare(_NEW_NETWORK):
        unshare(_NEW_USER | _NEW_NETWORK)


def _refuse(refused: Collection[str], event: str, _: object) -> None:
    if event in refused:
        raise PermissionError(f"a grading worker must not use {event}")

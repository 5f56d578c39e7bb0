"""How grading workers start, and how they end together with the programs that they have started.

A worker that may start programs leads a process group (a session) of its own. All of the group is
killed (SIGKILL) when the pool ends the worker, when the worker dies, and when the process that has
the pool dies, however that may be. What a program takes out of the group, by a session of its own,
is out of reach. Linux and macOS.

A stop request (SIGTERM) often goes to all processes of a run, by their group or their job. It is
for the main process, which saves and then ends its workers: these, and the server that they are
forked from, do not heed it, so that no verdict depends on it.
"""

import contextlib
import multiprocessing.context
import multiprocessing.forkserver
import multiprocessing.popen_forkserver
import multiprocessing.resource_tracker
import multiprocessing.spawn
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

from vinejax.tasks import Task


def context(cls: type[Task]) -> multiprocessing.context.BaseContext:
    """Workers are forked from a clean server process, never from this one, in which JAX runs."""
    _start_server()
    if cls.__module__ == "__main__":  # then the worker needs the main script for the class
        return _WithMain()
    return _WithoutMain()


def _start_server() -> None:
    """The server has SIGTERM blocked for good, as what a process blocks its children block."""
    multiprocessing.resource_tracker.ensure_running()  # else the server starts it, and unblocks
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        with _starting, _main_left_out():
            multiprocessing.forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_stop_requests() -> None:
    """In a worker; programs that it starts heed them, as they inherit no handler."""
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def lead_group() -> None:
    """Makes this worker the leader of a group that ends with the process that has the pool.

    Call it last: threads keep a process from entering namespaces.
    """
    os.setsid()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.killpg(0, signal.SIGKILL)


def end_group(leader: int | None) -> None:
    """Kills all of the group that `leader` leads or has led, if there is one."""
    if leader is not None:
        with contextlib.suppress(OSError):
            os.killpg(leader, signal.SIGKILL)


_starting = threading.Lock()


class _Worker(multiprocessing.context.ForkServerProcess):
    """A process that takes its group with it, and does not heed SIGTERM."""

    def terminate(self) -> None:
        end_group(self.pid)
        self.kill()


class _Clean(_Worker):
    """A process that does not import the main script, which would bring JAX with it."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 (multiprocessing's name)
        with _starting, _main_left_out():
            return multiprocessing.popen_forkserver.Popen(process_obj)


class _WithMain(multiprocessing.context.ForkServerContext):
    Process = _Worker


class _WithoutMain(multiprocessing.context.ForkServerContext):
    Process = _Clean


@contextlib.contextmanager
def _main_left_out() -> Iterator[None]:
    """multiprocessing has no option for it: the description of the main script is taken out of
    what it sends to new processes."""
    original = multiprocessing.spawn.get_preparation_data

    def without_main(name: str) -> dict[str, Any]:
        data = original(name)
        return {key: data[key] for key in data if not key.startswith("init_main")}

    multiprocessing.spawn.get_preparation_data = without_main
    try:
        yield
    finally:
        multiprocessing.spawn.get_preparation_data = original

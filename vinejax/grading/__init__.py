"""Grades responses in worker processes that can be killed, and keeps a journal of the verdicts.

In: (problem, response) pairs. Out: one `Verdict` each, in order. An answer that hangs or kills its
grader costs its own grade only. Workers import the task and nothing of JAX; what a grade means and
what a truncated response is worth is the business of the task and of the caller.

Limits of one answer, by what it does:
  computes too long       CPU time, at `limit`: an exception in the worker, which lives on
  the same inside C code  CPU time, at twice `limit`: the kernel ends the worker (SIGPROF)
  sleeps or is stuck      wall time, at four times `limit` plus 10 s: the pool kills the worker, and
                          the programs that it has started
CPU time rather than wall time, so that a busy machine does not change a verdict. Reading a response
takes milliseconds at most; it is a formula's algebra that the limit is for. Workers are confined in
other ways, too: see `limits`.
"""

import hashlib
import math
import pickle
import signal
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as WallTimeout
from typing import Any

import pebble

from vinejax import tasks
from vinejax.config import UserError
from vinejax.grading.faults import Faults, Verdict
from vinejax.grading.limits import confine
from vinejax.grading.workers import context, end_group, ignore_stop_requests, lead_group
from vinejax.journal import Journal
from vinejax.tasks import Problem, Task

__all__ = ["Faults", "GraderPool", "Grading", "Verdict"]

CHUNK = 512  # answers in one message: at most; fewer when that keeps all workers busy
NOTE_LENGTH = 200
START_LIMIT = 120  # seconds until the first worker has imported the task


Item = tuple[Problem, str]


class GraderPool:
    """Worker processes with one task each; a context manager.

    task_name, task_options: as for `tasks.get`. workers: 0 grades in this process, without limits
    (for tests and debugging). limit: CPU seconds for one answer. journal: None = verdicts are not
    recorded. Methods may be called from any thread.
    """

    def __init__(
        self,
        task_name: str,
        task_options: Mapping[str, Any],
        workers: int,
        limit: float = 15.0,
        journal: Journal | None = None,
    ):
        self._task = tasks.get(task_name, **task_options)
        self._workers, self._limit, self._journal = workers, limit, journal
        self._wall = 4 * limit + 10
        self._faults: dict[tuple[int, str], list[Faults]] = {}
        self._pool: pebble.ProcessPool | None = None
        self._started: Any = None
        if workers:
            cls = tasks.find(task_name)
            _check_importable(cls)
            self._pool = pebble.ProcessPool(
                max_workers=workers,
                initializer=_start_worker,
                initargs=(cls, dict(task_options), limit),
                context=context(cls),
            )
            # An empty job starts the workers now, while the first samples are drawn.
            self._started = self._pool.schedule(_grade_chunk, args=([], False))

    def __enter__(self) -> "GraderPool":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.stop()
            self._pool.join()

    def submit(
        self, items: Sequence[Item], iteration: int = 0, phase: str = "", strict: bool = False
    ) -> "Grading":
        """Starts grading; equal items are graded once. The verdicts come from `.result()`.

        iteration and phase are what the journal files the verdicts under; verdicts that it holds
        for the iteration are used again. strict: `task.grade_strict` instead of `task.grade`.
        """
        keys = [_key(problem, response, strict) for problem, response in items]
        known = {} if self._journal is None else self._journal.verdicts(iteration)
        missing = {key: item for key, item in zip(keys, items, strict=True) if key not in known}
        done = {key: Verdict(*known[key]) for key in set(keys) if key in known}
        chunks = [
            (chunk, self._schedule([missing[key] for key in chunk], strict))
            for chunk in _chunks(list(missing), self._most_at_once(len(missing)))
        ]
        return Grading(self, keys, missing, done, chunks, (iteration, phase, strict))

    def grade(
        self, items: Sequence[Item], iteration: int = 0, phase: str = "", strict: bool = False
    ) -> list[Verdict]:
        """`submit` and wait."""
        return self.submit(items, iteration, phase, strict).result()

    def faults(self, iteration: int, phases: Collection[str]) -> Faults:
        """Of all answers that were graded for the iteration in these phases, their results read.

        Verdicts from the journal count as others do, so a resumed run finds the same numbers.
        """
        return Faults.total(
            faults for phase in phases for faults in self._faults.get((iteration, phase), ())
        )

    def _most_at_once(self, items: int) -> int:
        """Answers in one message. A program has the wall-clock limit for itself alone."""
        if self._task.runs_programs:
            return 1
        return max(1, min(CHUNK, math.ceil(items / (4 * max(self._workers, 1)))))

    def _schedule(self, items: list[Item], strict: bool) -> Any:
        if self._pool is None:
            return [_grade(self._task, item, strict) for item in items]
        return self._pool.schedule(_grade_chunk, args=(items, strict), timeout=self._wall)

    def _collect(self, items: list[Item], job: Any, strict: bool) -> list[Verdict]:
        """The verdicts of a chunk. If it lost its worker, each answer is graded by itself, so that
        only the guilty one pays."""
        if isinstance(job, list):
            return job
        self._wait_for_workers()
        try:
            return job.result()
        except (WallTimeout, pebble.ProcessExpired, _TimeLimit) as error:
            if isinstance(error, pebble.ProcessExpired) and self._task.runs_programs:
                end_group(error.pid)  # the pool, which ends its workers so, had no part in this
            if len(items) == 1:
                return [_lost(error)]
        jobs = [([item], self._schedule([item], strict)) for item in items]
        return [verdict for item, job in jobs for verdict in self._collect(item, job, strict)]

    def _wait_for_workers(self) -> None:
        """UserError if no worker comes up: the pool would go on starting new ones forever."""
        try:
            self._started.result(timeout=START_LIMIT)
        except WallTimeout as error:
            raise UserError(
                f"no grading worker was ready after {START_LIMIT} s; its error is above. The class "
                f"of task {self._task.name!r} must be importable there ({type(self._task)})"
            ) from error

    def _count(self, iteration: int, phase: str, faults: Faults) -> None:
        """What a grading came to. Of an earlier iteration nobody asks any more."""
        for key in [key for key in list(self._faults) if key[0] < iteration]:
            self._faults.pop(key, None)
        self._faults.setdefault((iteration, phase), []).append(faults)

    def _record(
        self, iteration: int, phase: str, verdicts: dict[str, Verdict]
    ) -> dict[str, Verdict]:
        """Enters verdicts in the journal and returns those that stand.

        An answer that was submitted twice before it had a verdict has two, which may differ where a
        time-out is a matter of luck. The first one counts, now as after a resume.
        """
        if self._journal is None or not verdicts:
            return verdicts
        self._journal.append(iteration, phase, verdicts)
        standing = self._journal.verdicts(iteration)
        return {key: Verdict(*standing[key]) for key in verdicts}


class Grading:
    """Verdicts on their way."""

    def __init__(
        self,
        pool: GraderPool,
        keys: list[str],
        missing: dict[str, Item],
        done: dict[str, Verdict],
        chunks: list[tuple[list[str], Any]],
        place: tuple[int, str, bool],
    ):
        self._pool, self._keys, self._missing, self._done = pool, keys, missing, done
        self._chunks, self._place = chunks, place
        self._lock, self._read = threading.Lock(), False

    def result(self) -> list[Verdict]:
        """One verdict an item, in their order; waits for them and enters them in the journal."""
        iteration, phase, strict = self._place
        with self._lock:
            if self._chunks:
                new: dict[str, Verdict] = {}
                for keys, job in self._chunks:
                    items = [self._missing[key] for key in keys]
                    new |= zip(keys, self._pool._collect(items, job, strict), strict=True)
                self._done |= self._pool._record(iteration, phase, new)
                self._chunks, self._missing = [], {}
            verdicts = [self._done[key] for key in self._keys]
            if not self._read:
                self._read = True
                self._pool._count(iteration, phase, Faults.of(verdicts))
        return verdicts


def _check_importable(cls: type[Task]) -> None:
    try:
        pickle.dumps(cls)
    except (pickle.PicklingError, AttributeError) as error:
        raise UserError(
            f"task {cls.name!r}: workers can grade only with a class that is importable, not with "
            f"{cls.__qualname__}; define it at the top of a module, or set grading.workers=0"
        ) from error


def _key(problem: Problem, response: str, strict: bool) -> str:
    """64 bits that identify a verdict; 33,000 answers collide with a chance of 3e-11."""
    text = f"{problem.id}\0{problem.answer}\0{int(strict)}\0{response}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _chunks(keys: list[str], size: int) -> Iterator[list[str]]:
    for first in range(0, len(keys), size):
        yield keys[first : first + size]


def _lost(error: BaseException) -> Verdict:
    is_timeout = isinstance(error, (WallTimeout, _TimeLimit)) or (
        getattr(error, "exitcode", None) == -signal.SIGPROF
    )
    return Verdict(0.0, "timeout" if is_timeout else "crash")


def _grade(task: Task, item: Item, strict: bool) -> Verdict:
    try:
        grade = float((task.grade_strict if strict else task.grade)(*item))
        if not 0 <= grade <= 1:
            raise ValueError(f"grade {grade} is outside [0, 1]")
    except _TimeLimit:
        return Verdict(0.0, "timeout")
    except Exception as error:
        return Verdict(0.0, f"error: {type(error).__name__}: {error}"[:NOTE_LENGTH])
    return Verdict(grade)


# --- in the workers -----------------------------------------------------------------------------


class _TimeLimit(BaseException):
    """The answer's CPU time is over; not an Exception, which graders may catch."""


_worker_task: Task
_worker_limit: float


def _start_worker(cls: type[Task], options: dict[str, Any], limit: float) -> None:
    global _worker_task, _worker_limit
    _worker_task, _worker_limit = cls(**options), limit
    # Ctrl-C is for the main process, which then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ignore_stop_requests()
    signal.signal(signal.SIGVTALRM, _raise_time_limit)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    confine(cls.runs_programs)
    if cls.runs_programs:
        lead_group()


def _raise_time_limit(*_: object) -> None:
    raise _TimeLimit


def _grade_chunk(items: list[Item], strict: bool) -> list[Verdict]:
    return [_grade_within_limit(item, strict) for item in items]


def _grade_within_limit(item: Item, strict: bool) -> Verdict:
    try:
        # Fires again, should a grader have swallowed the first one.
        signal.setitimer(signal.ITIMER_VIRTUAL, _worker_limit, 0.1)
        signal.setitimer(signal.ITIMER_PROF, 2 * _worker_limit)
        verdict = _grade(_worker_task, item, strict)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _TimeLimit:  # between the grade and the end of the timer
        verdict = Verdict(0.0, "timeout")
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
    return verdict

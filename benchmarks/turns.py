"""Engines that take turns: each in a process of its own, on one core, one at work at a time.

A worker is a module that calls `serve`. It reads what to do from its first line of standard input,
gets ready (imports, compiles, warms up), then runs once for every further line and answers with one
line of JSON. Ratios are formed within a round, so load on the machine that lasts longer than a
round cancels.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Any

from benchmarks import machine
from vinejax.config import UserError


@dataclass(frozen=True)
class Prepared:
    """An engine that has compiled everything: `run` does the work once and returns facts on it."""

    info: dict[str, Any]
    run: Callable[[], dict[str, Any]]
    product: Callable[[], None]  # one square fp32 matrix product of machine.PEAK_SIZE


def serve(prepare: Callable[[dict[str, Any]], Prepared]) -> None:
    """A worker's main: prepares once, then measures a run for each line that comes."""
    # Libraries may print; the answers keep the real standard output to themselves.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        prepared = prepare(json.loads(sys.stdin.readline()))
    except UserError as error:
        answers.write(json.dumps({"error": str(error)}) + "\n")
        return
    answers.write(json.dumps(prepared.info) + "\n")
    for _ in sys.stdin:
        peak = machine.peak_gflops(prepared.product)
        cpu, wall = machine.cpu_seconds(), time.perf_counter()
        facts = prepared.run()
        cpu, wall = machine.cpu_seconds() - cpu, time.perf_counter() - wall
        result = {**facts, "cpu_seconds": cpu, "wall_seconds": wall, "peak_gflops": peak}
        answers.write(json.dumps(result | {"load": os.getloadavg()[0]}) + "\n")


@dataclass(frozen=True)
class Engine:
    """A module that calls `serve`, what it is to do, and the interpreter that it runs in."""

    module: str
    spec: Mapping[str, Any]
    python: str = sys.executable


class Worker:
    """A process with one engine; a context manager that ends it."""

    def __init__(self, engine: Engine) -> None:
        self.module = engine.module
        self.process = subprocess.Popen(
            [engine.python, "-m", engine.module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=machine.one_thread(),
        )
        self._send(json.dumps(engine.spec))

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def ready(self) -> dict[str, Any]:
        """What the engine says of itself once it is compiled."""
        return self._answer()

    def measure(self) -> dict[str, Any]:
        """The facts of one more run."""
        self._send("go")
        return self._answer()

    def _send(self, line: str) -> None:
        _pipe(self.process.stdin).write(line + "\n")
        _pipe(self.process.stdin).flush()

    def _answer(self) -> dict[str, Any]:
        line = _pipe(self.process.stdout).readline()
        if not line:
            raise RuntimeError(f"{self.module} ended with exit code {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise UserError(answer["error"])
        return answer


def _pipe(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise RuntimeError("the worker has no pipe")
    return stream


Rounds = dict[str, list[dict[str, Any]]]


def take_turns(
    engines: Mapping[str, Engine],
    rounds: int,
    report: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
) -> tuple[dict[str, dict[str, Any]], Rounds]:
    """Runs every engine once a round; what they are and what they did."""
    if rounds < 1:
        raise UserError(f"--rounds is {rounds}: give 1 or more")
    infos: dict[str, dict[str, Any]] = {}
    results: Rounds = {name: [] for name in engines}
    with ExitStack() as stack:
        core = stack.enter_context(machine.pinned())
        workers: dict[str, Worker] = {}
        for name, engine in engines.items():
            workers[name] = stack.enter_context(Worker(engine))
            infos[name] = workers[name].ready() | {"core": core}
            report(f"{name} is ready")
        for turn in range(rounds):
            for name, worker in workers.items():
                results[name].append(worker.measure())
                report(f"round {turn + 1}: {name} {results[name][-1]}")
    return infos, results


def spread(values: Iterable[float]) -> list[float]:
    """[minimum, median, maximum]."""
    found = list(values)
    return [min(found), statistics.median(found), max(found)]


def ratio(results: Rounds, one: str, other: str, rate: Callable[[Any], float]) -> list[float]:
    """[minimum, median, maximum] over rounds of one engine's rate over another's."""
    pairs = zip(results[one], results[other], strict=True)
    return spread(rate(a) / rate(b) for a, b in pairs)

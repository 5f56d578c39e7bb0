"""The host's side of sampling: waves of trunks, job tables, the engine's chunks and their logs."""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from vinejax import policy
from vinejax.arrays import Finish
from vinejax.sampler import reroot, tables
from vinejax.sampler.bank import prefill
from vinejax.sampler.decode import Cache
from vinejax.sampler.engine import run_chunk
from vinejax.sampler.records import (
    Counters,
    Jobs,
    Layout,
    Samples,
    Settings,
    Trunks,
    power_of_two,
)
from vinejax.sampler.state import PARKED, Log, Queue, State, Stop, Table, init

# Jobs are handed to the engine in tables of one size, whatever their number: it is compiled once.
TABLE = 1 << 16
TABLE_SMALL = 1 << 12


def sample(
    weights: policy.DecodeWeights,
    config: policy.LlamaConfig,
    trunks: Trunks,
    jobs: Jobs,
    settings: Settings,
    key: jax.Array,
    *,
    layout: Layout | None = None,
    cache: policy.Cache | None = None,
    wave: int = 512,
) -> Samples:
    """Continues every job's prefix: the one entry, for trajectories, values and evaluation.

    `weights` come from `policy.unstack` (a parameter tree is unstacked here). `cache` holds the
    trunks' KV as `policy.score` returns it (row n for trunk n, rows beyond them unused): then
    nothing is prefilled. Without it the trunks are prefilled in waves of `wave`, longest first.

    A job's tokens depend on `key`, its prefix's tokens, its sample and copy numbers, and on nothing
    else: neither on the other jobs nor on `layout` or `wave`. Raises ValueError for a job outside
    its trunk.
    """
    if isinstance(weights["layers"], dict):
        weights = policy.unstack(weights, config)
    _check(trunks, jobs)
    layout = layout or Layout.auto(
        len(trunks.tokens),
        len(jobs) / max(1, len(trunks.tokens)),
        int(jobs.max_new_tokens.max(initial=1)),
    )
    collected = _Collected(jobs)
    driver = _Driver(
        weights, config, settings, layout, tables.stop_arrays(settings, config), collected
    )
    run = partial(_run_wave, driver, trunks, jobs, key)
    every = np.arange(len(trunks.tokens))
    if cache is not None:
        run(every, Cache(*cache))
    else:
        order = np.argsort(-trunks.length, kind="stable")
        for start in range(0, len(order), wave):
            members = order[start : start + wave]
            bank = prefill(weights, config, trunks, members, min(wave, power_of_two(len(order))))
            collected.counters.tokens_prefilled += int(trunks.length[members].sum())
            run(members, bank)
    return collected.samples()


def _check(trunks: Trunks, jobs: Jobs) -> None:
    if not len(jobs):
        return
    if jobs.trunk.min() < 0 or jobs.trunk.max() >= len(trunks.tokens):
        raise ValueError(f"a job names trunk {jobs.trunk.max()}, of {len(trunks.tokens)}")
    length = trunks.length[jobs.trunk]
    bad = np.flatnonzero((jobs.prefix_length < 1) | (jobs.prefix_length > length))
    if len(bad):
        raise ValueError(
            f"job {bad[0]} keeps {jobs.prefix_length[bad[0]]} tokens of a trunk of "
            f"{length[bad[0]]}: a prefix has 1 token at least and ends within its trunk"
        )


class _Collected:
    """The samples as they come in, by job."""

    def __init__(self, jobs: Jobs) -> None:
        width = int(jobs.max_new_tokens.max(initial=1))
        self.tokens = np.zeros((len(jobs), max(1, width)), np.int32)
        self.logprob = np.zeros(self.tokens.shape, np.float32)
        self.logprob_full = np.zeros(self.tokens.shape, np.float32)
        self.length = np.zeros(len(jobs), np.int32)
        # A job without a budget is cut off before it begins.
        self.finish = np.where(jobs.max_new_tokens < 1, Finish.LENGTH, Finish.RUNNING).astype(
            np.int32
        )
        self.counters = Counters()

    def add(self, ids: np.ndarray, log: Log, steps: int) -> None:
        """Files the first `steps` lines of a log; `ids` names the job of each table row."""
        job, index, token, logprob, logprob_full, finish = (np.asarray(a)[:steps] for a in log)
        ended = (job >= 0) & (finish != Finish.RUNNING)
        self.finish[ids[job[ended]]] = finish[ended]
        drew = (job >= 0) & (finish != Finish.ERROR)
        place = ids[job[drew]], index[drew]
        self.tokens[place] = token[drew]
        self.logprob[place] = logprob[drew]
        self.logprob_full[place] = logprob_full[drew]
        np.maximum.at(self.length, place[0], place[1] + 1)
        self.counters.tokens_sampled += int(drew.sum())

    def samples(self) -> Samples:
        """All of them; RuntimeError if a job has not ended."""
        running = np.flatnonzero(self.finish == Finish.RUNNING)
        if len(running):
            raise RuntimeError(
                f"the engine stopped with {len(running)} of {len(self.finish)} jobs unfinished"
            )
        return Samples(
            self.tokens, self.logprob, self.logprob_full, self.length, self.finish, self.counters
        )


@dataclass(frozen=True)
class _Driver:
    """Runs the engine on the jobs of one call to `sample`: what all its chunks have in common."""

    weights: policy.DecodeWeights
    config: policy.LlamaConfig
    settings: Settings
    layout: Layout
    stop: Stop
    collected: _Collected

    def run(self, bank: Cache, queue: Queue, table: Table, ids: np.ndarray) -> None:
        """Chunk by chunk until no job is left; the next chunk starts before the last is read.

        `ids` names the job of each table row.
        """
        fixed = (self.weights, self.config, self.settings, self.layout)
        run = partial(run_chunk, *fixed, bank, queue, table, self.stop)
        slots = self.layout.rows * self.layout.slots
        state, *ahead = run(init(self.config, self.layout, bank.keys[0].shape[-1], queue))
        while True:
            log, report = ahead
            state, *ahead = run(state)
            steps, active, parked = (int(x) for x in report)
            if steps:
                self.collected.add(ids, log, steps)
                self.collected.counters.steps += steps
                self.collected.counters.slot_steps += steps * slots
            if not active and not parked:
                return
            if parked and not steps:  # the last chunk could do nothing more
                state, *ahead = run(self._run_uprooted(state, table, ids))

    def _run_uprooted(self, state: State, table: Table, ids: np.ndarray) -> State:
        """Runs the parked vines to their end from a bank of their own; frees their slots."""
        bank, onward = reroot.uproot(state, table, self.layout)
        is_parked = np.asarray(state.status).reshape(-1) == PARKED
        slots = len(is_parked)
        job_ids = ids[np.asarray(state.job).reshape(-1)]
        self.collected.counters.rerooted += int(is_parked.sum())
        state = reroot.release(state)
        place = np.arange(slots, dtype=np.int32)
        queue = Queue(jnp.asarray(place), jnp.asarray(place + is_parked))
        single = replace(self.layout, rows=slots, slots=1, trunks_per_row=1)
        replace(self, layout=single).run(bank, queue, onward, job_ids)
        return state


def _run_wave(
    driver: _Driver,
    trunks: Trunks,
    jobs: Jobs,
    key: jax.Array,
    members: np.ndarray,
    bank: Cache,
) -> None:
    """Runs the jobs of the trunks `members`, whose KV is in `bank` in that order."""
    place = np.full(len(trunks.tokens), -1)
    place[members] = np.arange(len(members))
    chosen = np.flatnonzero((place[jobs.trunk] >= 0) & (jobs.max_new_tokens >= 1))
    # Within a trunk short prefixes first: they have the longest way to go.
    chosen = chosen[np.lexsort((jobs.prefix_length[chosen], place[jobs.trunk[chosen]]))]
    size = TABLE_SMALL if len(jobs) <= TABLE_SMALL else TABLE
    for start in range(0, len(chosen), size):
        ids = chosen[start : start + size]
        part = jobs.take(ids)
        table = tables.table(trunks, part, driver.settings, key, size)
        queue = tables.queue(place[part.trunk], bank.keys[0].shape[0])
        driver.run(bank, queue, table, ids)

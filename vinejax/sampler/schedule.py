"""The host's side of sampling: waves of trunks, job tables, the engine's chunks, and its logs read back."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from vinejax import policy
from vinejax.arrays import Finish
from vinejax.sampler import engine, reroot
from vinejax.sampler.decode import Cache
from vinejax.sampler.records import (
    Counters,
    Jobs,
    Layout,
    Samples,
    Settings,
    Trunks,
    bucket,
    node_hash,
    power_of_two,
)

# Jobs are handed to the engine in tables of this size, whatever their number, so that it is compiled once.
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
    """Continues every job's prefix; the one entry to sampling for trajectories, values and evaluation.

    `weights` come from `policy.unstack` (a parameter tree is unstacked here). `cache` holds the trunks'
    KV as `policy.score` returns it (row n for trunk n, rows beyond them unused): then nothing is
    prefilled. Without it the trunks are prefilled in waves of `wave`, longest first.

    A job's tokens depend on `key`, its prefix's tokens, its sample and copy numbers, and on nothing else:
    neither on the other jobs nor on `layout` or `wave`. Raises ValueError for a job outside its trunk.
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
    run = partial(_run_wave, weights, config, settings, key, layout, trunks, jobs, collected)
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


def prefill(weights, config, trunks: Trunks, members: np.ndarray, count: int) -> Cache:
    """The KV of the trunks `members`, as the first rows of a bank of `count`."""
    chosen = [trunks.tokens[m] for m in members]
    width = bucket(max(len(row) for row in chosen))
    tokens = Trunks.of(chosen).padded(count, width)
    length = np.zeros(count, np.int32)
    length[: len(chosen)] = [len(row) for row in chosen]
    return _prefill(weights, config, tokens, length)


@partial(jax.jit, static_argnames=("config",))
def _prefill(weights, config, tokens, length) -> Cache:
    _, cache = policy.score(weights, config, tokens, length, keep_cache=True)
    return Cache(*cache)


def _check(trunks: Trunks, jobs: Jobs) -> None:
    if not len(jobs):
        return
    if jobs.trunk.min() < 0 or jobs.trunk.max() >= len(trunks.tokens):
        raise ValueError(f"a job names trunk {jobs.trunk.max()}, of {len(trunks.tokens)}")
    length = trunks.length[jobs.trunk]
    bad = np.flatnonzero((jobs.prefix_length < 1) | (jobs.prefix_length > length))
    if len(bad):
        raise ValueError(
            f"job {bad[0]} keeps {jobs.prefix_length[bad[0]]} tokens of a trunk of {length[bad[0]]}: "
            "a prefix has 1 token at least and ends within its trunk"
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

    def add(self, ids: np.ndarray, log: engine.Log, steps: int) -> None:
        """Files the first `steps` lines of a log; `ids` names the job of each table row."""
        log = engine.Log(*(np.asarray(a)[:steps] for a in log))
        ended = (log.job >= 0) & (log.finish != Finish.RUNNING)
        self.finish[ids[log.job[ended]]] = log.finish[ended]
        drew = (log.job >= 0) & (log.finish != Finish.ERROR)
        job, index = ids[log.job[drew]], log.index[drew]
        self.tokens[job, index] = log.token[drew]
        self.logprob[job, index] = log.logprob[drew]
        self.logprob_full[job, index] = log.logprob_full[drew]
        np.maximum.at(self.length, job, index + 1)
        self.counters.tokens_sampled += len(job)

    def samples(self) -> Samples:
        running = np.flatnonzero(self.finish == Finish.RUNNING)
        if len(running):
            raise RuntimeError(
                f"the engine stopped with {len(running)} of {len(self.finish)} jobs unfinished"
            )
        names = ("tokens", "logprob", "logprob_full", "length", "finish", "counters")
        return Samples(*(getattr(self, name) for name in names))


def _run_wave(
    weights, config, settings, key, layout, trunks, jobs, collected, members, bank
) -> None:
    """Runs the jobs of the trunks `members`, whose KV is in `bank` in that order."""
    place = np.full(len(trunks.tokens), -1)
    place[members] = np.arange(len(members))
    chosen = np.flatnonzero((place[jobs.trunk] >= 0) & (jobs.max_new_tokens >= 1))
    # Within a trunk short prefixes first: they have the longest way to go.
    chosen = chosen[np.lexsort((jobs.prefix_length[chosen], place[jobs.trunk[chosen]]))]
    size = TABLE_SMALL if len(jobs) <= TABLE_SMALL else TABLE
    stop = _stop_arrays(settings, config)
    for start in range(0, len(chosen), size):
        ids = chosen[start : start + size]
        part = jobs.take(ids)
        table = _table(trunks, part, settings, key, size)
        queue = _queue(place[part.trunk], bank.keys[0].shape[0])
        _drive(weights, config, settings, layout, bank, queue, table, stop, ids, collected)


def _table(trunks: Trunks, jobs: Jobs, settings: Settings, key, size: int) -> engine.Table:
    prefixes = list(zip(jobs.trunk.tolist(), jobs.prefix_length.tolist(), strict=True))
    words, states = {}, {}
    for trunk, length in set(prefixes):
        tokens = trunks.tokens[trunk]
        words[trunk, length] = node_hash(tokens[:length])
        if settings.stop is not None:
            response = tokens[trunks.prompt_length[trunk] : length]
            states[trunk, length] = settings.stop.advance(response.tolist())
    columns = {
        "prefix_length": jobs.prefix_length,
        "first_token": [trunks.tokens[t][p - 1] for t, p in prefixes],
        "stop_state": [states.get(p, 0) for p in prefixes],
        "offset": np.zeros(len(jobs)),
        "limit": jobs.max_new_tokens,
    }
    padded = {name: _pad(np.asarray(column, np.int32), size) for name, column in columns.items()}
    identity = np.array([words[p] for p in prefixes], np.uint32).reshape(-1, 2)
    identity = np.column_stack(
        [identity, jobs.copy.astype(np.uint32), jobs.sample.astype(np.uint32)]
    )
    return engine.Table(**padded, key=_job_keys(key, _pad(identity, size)))


def _pad(column: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([column, np.ones((size - len(column), *column.shape[1:]), column.dtype)])


@jax.jit
def _job_keys(key, words):
    """Key data of each job: the phase's key with the node, the copy and the sample folded in."""

    def one(row):
        k = key
        for word in row:
            k = jax.random.fold_in(k, word)
        return jax.random.key_data(k)

    return jax.vmap(one)(words)


def _queue(place: np.ndarray, count: int) -> engine.Queue:
    """The ranges of jobs sorted by place in the bank. Places without jobs are empty ranges, passed over."""
    start = np.searchsorted(place, np.arange(count), side="left").astype(np.int32)
    end = np.searchsorted(place, np.arange(count), side="right").astype(np.int32)
    return engine.Queue(start, end, jnp.int32(place.max(initial=-1) + 1))


def _stop_arrays(settings: Settings, config: policy.LlamaConfig) -> engine.Stop:
    if settings.stop is None:
        return engine.Stop(np.zeros((2, config.vocab_size), np.int32), jnp.int32(1))
    table = np.asarray(settings.stop.table, np.int32)
    missing = config.vocab_size - table.shape[1]
    return engine.Stop(
        np.pad(table, ((0, 0), (0, max(0, missing)))), jnp.int32(settings.stop.matched)
    )


def _drive(weights, config, settings, layout, bank, queue, table, stop, ids, collected) -> None:
    """Runs the engine chunk by chunk until no job is left; the next chunk starts before the last is read."""
    state = engine.init(config, layout, bank.keys[0].shape[-1])
    queue, table, stop = jax.device_put((queue, table, stop))
    run = partial(engine.run_chunk, weights, config, settings, layout, bank, queue, table, stop)
    state, *ahead = run(state)
    while True:
        log, report = ahead
        state, *ahead = run(state)
        steps, active, parked = (int(x) for x in report)
        if steps:
            collected.add(ids, log, steps)
            collected.counters.steps += steps
            collected.counters.slot_steps += steps * layout.rows * layout.slots
        if not active and not parked:
            return
        if parked and not steps:  # the last chunk could do nothing more
            state = _drive_uprooted(
                weights, config, settings, layout, state, table, stop, ids, collected
            )
            state, *ahead = run(state)


def _drive_uprooted(weights, config, settings, layout, state, table, stop, ids, collected):
    """Runs the parked vines to their end from a bank of their own; returns the state with their slots free."""
    bank, onward = reroot.uproot(state, table, layout)
    parked = np.flatnonzero(np.asarray(state.status).reshape(-1) == engine.PARKED)
    job_ids = ids[np.asarray(state.job).reshape(-1)]
    is_parked = np.isin(np.arange(len(job_ids)), parked)
    collected.counters.rerooted += len(parked)
    state = reroot.release(state)
    slots = layout.rows * layout.slots
    single = Layout(slots, 1, layout.ring, layout.chunk, trunks_per_row=1)
    place = np.arange(slots, dtype=np.int32)
    queue = engine.Queue(place, place + is_parked, jnp.int32(slots))
    _drive(weights, config, settings, single, bank, queue, onward, stop, job_ids, collected)
    return state

"""How noisy the policy gradient is that each method's advantages give (paper: gradient variance).

At a checkpoint, problems of the next iteration are answered anew in batch after batch. In each one
every estimator gives the same trajectories advantages of its own, raw, and the gradient of the
policy term follows (`update.gradient`). Over independent batches its noise is the trace of its
covariance, its signal the squared norm of its mean. Their ratio does not depend on an estimator's
scale, and falls as 1 / n where n batches are averaged.

    estimator      advantage of a token
    vine_K         VinePPO's, from K rollouts a state, under the run's rules for values
    critic         PPO's, by GAE over the critic of the checkpoint
    group          GRPO's
    leave_one_out  RLOO's
    constant       the reward less a constant: the mean reward of a batch that is not measured

Gradients are not kept: there are up to `GROUPS` running sums of them at a time.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jaxtyping import Bool, Float
from scipy import special

from vinejax import advantages, policy, sharding, update
from vinejax.analysis.predictors import Policy, counts
from vinejax.statistics import CONFIDENCE
from vinejax.train import batches, credit, learning, trajectories
from vinejax.train.algorithms import ppo
from vinejax.train.clock import Clock
from vinejax.train.setup import Setup
from vinejax.train.trajectories import Trajectories

PROBLEMS = 16  # of a batch, at most: more of them lower the noise of all estimators alike
GROUPS = 8  # of batches: what intervals and halves are made from
PHASE = "analysis-gradients"

Record = dict[str, Any]
Credits = list[np.ndarray]  # advantages of the response tokens, fp32 [T] for each trajectory


def sample(own: Policy, params: policy.Params, count: int) -> Record:
    """Raw numbers of all estimators over `count` batches; `params` are the policy's, fp32.

    By estimator: `tokens` sampled for each batch, rollouts included; `squares`, each gradient's
    squared norm; `products` of the groups' sums, batch b being in group b mod their number.
    """
    setup = _fixed(own)
    mesh = None if setup.mesh.size == 1 else setup.mesh
    rows: list[dict[str, np.ndarray]] = []
    tokens: dict[str, list[int]] = {}
    for batch, found in _batches(own, setup, count):
        rows.append(_packed(setup, batch, {name: a for name, (a, _) in found.items()}))
        for name, (_, spent) in found.items():
            tokens.setdefault(name, []).append(spent)
    settings = learning.hyper(setup.config, setup.model)
    gradient = update.make_gradient(settings, mesh)
    placed = None if mesh is None else sharding.batch(mesh)
    params = jax.device_put(
        params, None if mesh is None else update.shardings(settings, mesh).params
    )
    numbers: Record = {}
    for name, spent in tokens.items():
        gradients = (gradient(params, _weighed(part, name, placed)) for part in rows)
        squares, products = _products(gradients, min(GROUPS, count))
        numbers[name] = {"tokens": spent, "squares": squares, "products": products}
    return {"trajectories": setup.config.episodes, "estimators": numbers}


def _fixed(own: Policy) -> Setup:
    """A setup whose every iteration has the problems of the checkpoint's next one.

    Its seed is its own, so that no sample is one of another analysis or of training.
    """
    setup = own.setup
    seed = int(jax.random.bits(own.key(PHASE), dtype=np.uint32)) >> 1
    problems = trajectories.choose_prompts(setup, own.iteration)[:PROBLEMS]
    config = replace(setup.config, seed=seed, prompts=len(problems))
    return replace(setup, config=config, train=problems)


def _batches(
    own: Policy, setup: Setup, count: int
) -> Iterator[tuple[Trajectories, dict[str, tuple[Credits, int]]]]:
    """Batches, and by estimator the advantages with the tokens that were sampled for them."""
    constant = 0.0
    for number in range(count + 1):
        batch = trajectories.collect(setup, own.weights, own.graders, number, 0, Clock())
        if number == 0:
            constant = batch.reward.mean()
            continue
        spent = batch.counters.tokens_sampled
        found: dict[str, tuple[Credits, int]] = {}
        for k in counts(setup.config.values.k):
            with_k = replace(setup.config.values, k=k)
            one = replace(setup, config=replace(setup.config, values=with_k))
            measured = credit.assign(one, own.weights, own.graders, number, batch, Clock())
            more = measured.counters.tokens_sampled
            found[f"vine_{k}"] = measured.token_advantages, spent + more
        for name, alike in _by_response(setup, batch, constant).items():
            spread = [
                np.full(len(r.tokens), a, np.float32)
                for r, a in zip(batch.responses, alike, strict=True)
            ]
            found[name] = spread, spent
        if own.critic is not None:
            rows = learning.sequences_of(batch)
            values = own.critic.of_tokens(rows)
            found["critic"] = (
                ppo.advantages_of(setup.config, rows, values, batch.reward),
                spent,
            )
        yield batch, found


def _by_response(setup: Setup, batch: Trajectories, constant: float) -> dict[str, np.ndarray]:
    """Advantages [M] of the estimators that give all tokens of a response the same."""
    groups = batch.reward.reshape(-1, setup.config.samples)
    std = setup.config.advantages.std
    return {
        "group": np.concatenate([advantages.grpo(g, std=std) for g in groups]),
        "leave_one_out": np.concatenate([advantages.rloo(g) for g in groups]),
        "constant": batch.reward - np.float32(constant),
    }


def _packed(setup: Setup, batch: Trajectories, found: dict[str, Credits]) -> dict[str, np.ndarray]:
    """The batch in rows as an update has them, with a column of advantages for each estimator."""
    rows = learning.sequences_of(batch)
    rows |= {name: learning.over_responses(batch, own) for name, own in found.items()}
    devices = setup.mesh.shape["data"] * setup.mesh.shape["fsdp"]
    width, most = rows["tokens"].shape[1], setup.config.update.microbatch
    packed = batches.packed(rows, batches.place(rows["length"], width, most, devices))
    # Rows without a token make whole micro-batches of any number of trajectories.
    count = len(packed["length"])
    missing = -count % (most if count > most else devices)
    return {
        name: np.concatenate([column, np.zeros((missing, *column.shape[1:]), column.dtype)])
        for name, column in packed.items()
    }


def _weighed(
    part: dict[str, np.ndarray], name: str, placed: NamedSharding | None
) -> update.Weighed:
    """A batch on the devices, with the advantages of one estimator."""
    columns = {f.name: part[f.name] for f in fields(update.Weighed) if f.name != "advantages"}
    return update.Weighed(**sharding.place(columns | {"advantages": part[name]}, placed))


def _products(
    gradients: Iterable[policy.Params], groups: int
) -> tuple[list[float], list[list[float]]]:
    """Squared norms of all gradients, and the inner products of the sums of groups of them."""
    squares, sums = [], []
    for number, gradient in enumerate(gradients):
        squares.append(float(_inner(gradient, gradient)))
        if number < groups:
            sums.append(gradient)
        else:
            sums[number % groups] = _add(sums[number % groups], gradient)
    return squares, [[float(_inner(a, b)) for a in sums] for b in sums]


@partial(jax.jit, donate_argnums=0)
def _add(total: policy.Params, more: policy.Params) -> policy.Params:
    return jax.tree.map(jnp.add, total, more)


@jax.jit
def _inner(a: policy.Params, b: policy.Params) -> jax.Array:
    # Not a matrix product: those may have fewer digits on an accelerator.
    return jax.tree.reduce(jnp.add, jax.tree.map(lambda x, y: (x * y).sum(), a, b))


def summarise(record: Record) -> Record:
    """Noise and signal of every estimator at one checkpoint."""
    every = record["estimators"]
    return {
        "trajectories": record["trajectories"],
        "batches": len(next(iter(every.values()))["squares"]),
        "estimators": {name: measure(**numbers) for name, numbers in every.items()},
    }


def measure(
    tokens: Sequence[float], squares: Sequence[float], products: Sequence[Sequence[float]]
) -> Record:
    """Numbers of one estimator from what `sample` kept of it.

    noise: trace of the covariance of a batch's gradient. signal: squared norm of the mean gradient,
    without the noise that is in the square of a mean, so it may fall below 0. noise_to_signal is
    their quotient: as many batches have a mean whose noise equals the signal; tokens_to_signal are
    the tokens that these batches cost. cosine: between the mean gradients of the two halves.
    Intervals, 95 %: jackknife over groups, t of their number less one; None is what is not known.
    """
    square, product = np.array(squares, np.float64), np.array(products, np.float64)
    groups, cost = len(product), float(np.mean(tokens))
    noise, signal = _noise_and_signal(square, product, np.ones(groups, bool))
    without = [_noise_and_signal(square, product, np.arange(groups) != g) for g in range(groups)]
    found = {
        "tokens": cost,
        "noise": _with_interval(noise, [n for n, _ in without]),
        "signal": signal,
        "cosine": _cosine(product),
    }
    if not noise > 0 or not all(n > 0 for n, _ in without):
        nothing = {"value": None, "low": None, "high": None}
        return found | {"noise_to_signal": nothing, "tokens_to_signal": nothing}
    # Of the inverse there is an interval even where the signal may be 0.
    inverse = _with_interval(signal / noise, [s / n for n, s in without])
    ends = {"value": "value", "low": "high", "high": "low"}
    ratio = {end: 1 / x if (x := inverse[of]) > 0 else None for end, of in ends.items()}
    return found | {
        "noise_to_signal": ratio,
        "tokens_to_signal": {end: None if x is None else cost * x for end, x in ratio.items()},
    }


def _noise_and_signal(
    square: Float[np.ndarray, "B"], product: Float[np.ndarray, "J J"], kept: Bool[np.ndarray, "J"]
) -> tuple[float, float]:
    """Unbiased, from the batches of the groups that are kept.

    The signal is the mean inner product of two different batches' gradients, and the noise what is
    left of the mean square.
    """
    chosen = square[kept[np.arange(len(square)) % len(kept)]]
    n, total = len(chosen), product[np.ix_(kept, kept)].sum()
    signal = (total - chosen.sum()) / (n * (n - 1))
    return float(chosen.mean() - signal), float(signal)


def _with_interval(value: float, without: Sequence[float]) -> dict[str, float]:
    """The value, and its interval from those without one group each."""
    own, groups = np.array(without), len(without)
    error = np.sqrt((groups - 1) / groups * ((own - own.mean()) ** 2).sum())
    half = float(special.stdtrit(groups - 1, 0.5 + CONFIDENCE / 2) * error)
    return {"value": value, "low": value - half, "high": value + half}


def _cosine(product: Float[np.ndarray, "J J"]) -> float | None:
    """Between the sums of the even and of the odd groups."""
    even = np.arange(len(product)) % 2 == 0
    a, b, ab = (
        product[np.ix_(rows, columns)].sum()
        for rows, columns in ((even, even), (~even, ~even), (even, ~even))
    )
    return float(ab / np.sqrt(a * b)) if a > 0 and b > 0 else None

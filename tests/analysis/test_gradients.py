"""Noise and signal of gradient estimators: by hand, and against all responses that there are."""

import itertools
import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.train.enumerable import (
    CONFIG,
    EOS,
    MODEL,
    PARAMS,
    PROMPT_LENGTH,
    Majority,
    setup_of,
)
from vinejax import policy, sharding, update
from vinejax.analysis import gradients
from vinejax.analysis.predictors import Critic, Policy
from vinejax.config import ValuesConfig
from vinejax.grading import GraderPool
from vinejax.train import learning, trajectories
from vinejax.train.algorithms import ppo
from vinejax.train.clock import Clock

LONGEST = 4
BATCHES = 64


class Unstopped(Majority):
    """Nothing but the end-of-sequence token ends a response, so every sampled token is trained."""

    stop = ()


# All that is sampled is in the loss, under the probabilities it was sampled with, and divided by a
# number that does not depend on it: so the gradient of the expected reward can be computed exactly.
EXACT = replace(
    CONFIG,
    samples=4,
    sampling=replace(CONFIG.sampling, top_p=1.0, unfinished_eos="kept"),
    values=ValuesConfig(k=3, states="token", budget="remaining", context=6),
    update=replace(CONFIG.update, divisor="constant", minibatch=16, microbatch=8),
)


@pytest.fixture(scope="module")
def own():
    setup = replace(setup_of(EXACT), task=Unstopped())
    with GraderPool(setup.config.task.name, {}, workers=0) as graders:
        critic = Critic.load(setup, PARAMS, None, 0)
        yield Policy.of(setup, 0, PARAMS, graders, critic)


@pytest.fixture(scope="module")
def every(own):
    """Gradients themselves, [batches, parameters], by estimator."""
    setup = gradients._fixed(own)
    gradient = update.make_gradient(learning.hyper(setup.config, MODEL))
    found: dict[str, list[np.ndarray]] = {}
    for batch, weighed in gradients._batches(own, setup, BATCHES):
        rows = gradients._packed(setup, batch, {name: a for name, (a, _) in weighed.items()})
        for name in weighed:
            row = gradients._weighed(rows, name, None)
            found.setdefault(name, []).append(flat(gradient(PARAMS, row)))
    return {name: np.stack(rows) for name, rows in found.items()}


@pytest.fixture(scope="module")
def record(own):
    return gradients.sample(own, PARAMS, 8)


def exact_gradient(setup) -> np.ndarray:
    """Of -(mean expected reward of the problems) / longest response, flat."""
    responses = [
        (*some, EOS)
        for length in range(LONGEST)
        for some in itertools.product((0, 2, 3, 4), repeat=length)
    ]  # a response without an end is worth 0

    def negative(params):
        total = 0.0
        for prompted in setup.train:
            rows, length, reward = [], [], []
            for response in responses:
                text = "".join(("", "", "0", "1", "\n")[t] for t in response)
                kept = setup.task.finished(text)
                reward.append(setup.task.grade(prompted.problem, text) if kept else 0.0)
                row = [*prompted.tokens, *response]
                length.append(len(row))
                rows.append(row + [0] * (PROMPT_LENGTH + LONGEST - len(row)))
            at, where = np.arange(PROMPT_LENGTH + LONGEST), np.array(length)[:, None]
            logp, _ = policy.sequence_logprobs(
                params,
                MODEL,
                jnp.array(rows),
                jnp.asarray(at < where),
                setup.config.sampling.temperature,
            )
            chosen = (at >= PROMPT_LENGTH) & (at < where)
            probability = jnp.exp(jnp.where(chosen, logp, 0.0).sum(axis=1))
            total += (probability * np.array(reward)).sum()
        return -total / len(setup.train) / setup.config.sampling.max_new_tokens

    return flat(jax.grad(negative)(PARAMS))


def flat(tree) -> np.ndarray:
    return np.concatenate([np.asarray(x, np.float64).ravel() for x in jax.tree.leaves(tree)])


@pytest.mark.slow
def test_estimators_have_the_exact_gradient_as_their_mean(own, every):
    exact = exact_gradient(own.setup)
    assert set(every) == {
        "vine_1", "vine_3", "vine_9", "group", "leave_one_out", "constant", "critic",
    }  # fmt: skip
    for name, rows in every.items():
        if name == "group":  # divided by a standard deviation: another mean
            continue
        mean = rows.mean(axis=0)
        noise = ((rows - mean) ** 2).sum() / (BATCHES - 1)
        # The mean of n batches is off by noise / n, in the mean; the noise has few dimensions.
        assert ((mean - exact) ** 2).sum() < 3 * noise / BATCHES, name
        assert mean @ exact > 0.8 * exact @ exact, name
        found = gradients.measure(**numbers(rows, gradients.GROUPS))
        assert_allclose(found["noise"]["value"], noise)
        off = np.sqrt(exact @ exact * noise / BATCHES) + noise / BATCHES
        assert abs(found["signal"] - exact @ exact) < 4 * off, name


@pytest.mark.slow
def test_another_advantage_would_be_noticed(own, every):
    """That of the token before, which is no estimator of the gradient."""
    exact, setup = exact_gradient(own.setup), gradients._fixed(own)
    gradient = update.make_gradient(learning.hyper(setup.config, MODEL))
    off = []
    for batch, found in gradients._batches(own, setup, 32):
        shifted = {"x": [np.roll(a, 1) for a in found["vine_9"][0]]}
        row = gradients._weighed(gradients._packed(setup, batch, shifted), "x", None)
        off.append(flat(gradient(PARAMS, row)))
    mean = np.mean(off, axis=0)
    noise = ((np.stack(off) - mean) ** 2).sum() / (len(off) - 1)
    assert ((mean - exact) ** 2).sum() > 6 * noise / len(off)


@pytest.mark.slow
def test_what_is_kept_is_enough_for_noise_and_signal(every, record):
    for name, rows in every.items():
        kept = gradients.measure(**record["estimators"][name])
        expected = gradients.measure(**numbers(rows[:8], 8))
        assert kept["noise"] == pytest.approx(expected["noise"], rel=1e-3), name
        assert kept["cosine"] == pytest.approx(expected["cosine"], rel=1e-3), name
        assert kept["signal"] == pytest.approx(expected["signal"], rel=1e-3), name


@pytest.mark.slow
def test_more_rollouts_make_less_noise_and_cost_more_tokens(record):
    found = gradients.summarise(json.loads(json.dumps(record)))
    assert found["batches"] == 8
    assert found["trajectories"] == 16
    noise = [found["estimators"][f"vine_{k}"]["noise"]["value"] for k in (1, 3, 9)]
    tokens = [found["estimators"][f"vine_{k}"]["tokens"] for k in (1, 3, 9)]
    alone = found["estimators"]["leave_one_out"]["tokens"]
    assert noise[0] > noise[1] > noise[2]
    # Rollouts alone are K times as many; those of a smaller K are among those of a larger.
    assert tokens[1] - alone == pytest.approx(3 * (tokens[0] - alone), rel=0.1)
    assert tokens[2] - alone == pytest.approx(9 * (tokens[0] - alone), rel=0.1)
    assert {found["estimators"][n]["tokens"] for n in ("group", "constant", "critic")} == {alone}


@pytest.mark.slow
def test_the_same_batches_again_give_the_same_numbers(own):
    first, again = (gradients.sample(own, PARAMS, 4) for _ in range(2))
    assert first == again
    later = gradients._fixed(replace(own, iteration=1))
    assert later.config.seed != gradients._fixed(own).config.seed


def test_equal_rewards_teach_nothing(own, monkeypatch):
    """Every group, and the constant, are exactly what each response got."""
    original = trajectories.collect

    def collect(*arguments):
        batch = original(*arguments)
        return replace(batch, reward=np.full_like(batch.reward, 0.5))

    monkeypatch.setattr(trajectories, "collect", collect)
    numbers = gradients.sample(own, PARAMS, 4)["estimators"]
    for name in ("group", "leave_one_out", "constant"):
        assert numbers[name]["squares"] == [0.0] * 4
        found = gradients.measure(**numbers[name])
        assert (found["noise"]["value"], found["signal"]) == (0.0, 0.0)
        assert found["noise_to_signal"] == {"value": None, "low": None, "high": None}
        assert found["cosine"] is None


def test_advantages_that_are_all_zero_have_a_gradient_of_zero(own):
    setup = gradients._fixed(own)
    batch, found = next(gradients._batches(own, setup, 1))
    nothing = {"x": [np.zeros_like(a) for a in found["constant"][0]]}
    row = gradients._weighed(gradients._packed(setup, batch, nothing), "x", None)
    gradient = update.make_gradient(learning.hyper(setup.config, MODEL))
    assert not flat(gradient(PARAMS, row)).any()


def test_the_problems_are_those_of_the_next_iteration_and_samples_are_new(own):
    setup = gradients._fixed(own)
    wanted = {p.problem.id for p in trajectories.choose_prompts(own.setup, 0)}
    assert setup.config.prompts == len(wanted)
    draws = [trajectories.collect(setup, own.weights, own.graders, i, 0, Clock()) for i in range(2)]
    training = trajectories.collect(own.setup, own.weights, own.graders, 0, 0, Clock())
    assert all({p.id for p in batch.problems} == wanted for batch in draws)
    texts = [sorted(r.text for r in batch.responses) for batch in (*draws, training)]
    assert texts[0] != texts[1]
    assert texts[0] != texts[2]


@pytest.mark.slow
def test_problems_of_a_batch_are_bounded(own, monkeypatch):
    monkeypatch.setattr(gradients, "PROBLEMS", 3)
    setup = gradients._fixed(own)
    assert len(setup.train) == setup.config.prompts == 3
    # 12 trajectories are no whole number of micro-batches of 8 rows: empty rows fill them up.
    config = replace(setup.config, update=replace(setup.config.update, microbatch=8))
    batch, found = next(gradients._batches(own, setup, 1))
    packed = gradients._packed(replace(setup, config=config), batch, {"x": found["constant"][0]})
    count = len(packed["length"])
    assert count <= 8 or count % 8 == 0
    assert packed["length"].sum() == sum(map(len, batch.tokens))


def test_the_critics_advantages_are_those_of_training(own):
    setup = gradients._fixed(own)
    batch, found = next(gradients._batches(own, setup, 1))
    rows = learning.sequences_of(batch)
    values = own.critic.of_tokens(rows)
    for m, advantage in enumerate(found["critic"][0]):
        first, last = PROMPT_LENGTH, rows["length"][m]
        # gamma = lambda = 1: what is left of the return.
        assert_allclose(advantage, batch.reward[m] - values[m, first:last], atol=1e-5)
    assert ppo.advantages_of(setup.config, rows, values, batch.reward)[0].dtype == np.float32


def test_the_gradient_is_that_of_the_first_update(own):
    """Its norm is the one that the update reports, without KL term and whitening."""
    config = replace(
        EXACT,
        advantages=replace(EXACT.advantages, whiten=False),
        update=replace(EXACT.update, kl=0.0, divisor="tokens"),
    )
    settings = learning.hyper(config, MODEL)
    setup = gradients._fixed(own)
    batch, found = next(gradients._batches(own, setup, 1))
    packed = gradients._packed(setup, batch, {"x": found["vine_3"][0]})
    row = gradients._weighed(packed, "x", None)
    ours = flat(update.make_gradient(settings)(PARAMS, row))
    is_token = jnp.arange(row.tokens.shape[1]) < row.length[:, None]
    logp, _ = policy.sequence_logprobs(
        PARAMS, MODEL, row.tokens, is_token,
        settings.temperature, row.segments, row.at,
    )  # fmt: skip
    same = {name: getattr(row, name) for name in ("tokens", "length", "is_response", "advantages")}
    more = {"old_logp": logp, "ref_logp": logp, "segments": row.segments, "at": row.at}
    _, metrics = update.step(update.init(PARAMS, settings), update.Batch(**same, **more), settings)
    assert_allclose(np.linalg.norm(ours), metrics.grad_norm, rtol=1e-5)


# Four gradients of two numbers; mean (1, 1).
ROWS = np.array([[3.0, 1.0], [1.0, 1.0], [0.0, 3.0], [0.0, -1.0]])


def numbers(rows: np.ndarray, groups: int) -> dict:
    """As `sample` keeps them."""
    sums = np.stack([rows[g::groups].sum(axis=0) for g in range(groups)])
    return {
        "tokens": [10] * len(rows),
        "squares": (rows**2).sum(axis=1).tolist(),
        "products": (sums @ sums.T).tolist(),
    }


@pytest.mark.parametrize("groups", [2, 4])
def test_noise_and_signal_by_hand(groups):
    found = gradients.measure(**numbers(ROWS, groups))
    # Squared distances to the mean: 4, 0, 5, 5; in all 14, of 4 - 1 degrees of freedom.
    assert_allclose(found["noise"]["value"], 14 / 3)
    # |mean|^2 = 2, of which noise / 4 is noise.
    assert_allclose(found["signal"], 2 - 14 / 12)
    assert_allclose(found["noise_to_signal"]["value"], (14 / 3) / (2 - 14 / 12))
    assert_allclose(found["tokens_to_signal"]["value"], 10 * (14 / 3) / (2 - 14 / 12))
    # Sums of the even and the odd rows: (3, 4) and (1, 0).
    assert_allclose(found["cosine"], 3 / 5)


def test_intervals_are_a_jackknife_over_groups():
    rows = np.random.default_rng(0).normal(2.0, 1.0, (12, 5))
    found = gradients.measure(**numbers(rows, 4))
    without = []
    for g in range(4):
        kept = np.delete(rows, np.s_[g::4], axis=0)
        pairs = [a @ b for i, a in enumerate(kept) for j, b in enumerate(kept) if i != j]
        signal = np.mean(pairs)
        without.append(signal / ((kept**2).sum(axis=1).mean() - signal))
    inverse = np.array(without)
    error = np.sqrt(3 / 4 * ((inverse - inverse.mean()) ** 2).sum())
    value = 1 / found["noise_to_signal"]["value"]
    low, high = value - 3.18244631 * error, value + 3.18244631 * error
    assert low > 0
    assert_allclose(found["noise_to_signal"]["low"], 1 / high, rtol=1e-6)
    assert_allclose(found["noise_to_signal"]["high"], 1 / low, rtol=1e-6)


def test_a_signal_that_may_be_zero_has_no_upper_end():
    rows = np.random.default_rng(1).normal(0.1, 1.0, (8, 50))
    found = gradients.measure(**numbers(rows, 8))
    assert found["noise_to_signal"]["high"] is None
    negative = rows - rows.mean(axis=0)  # the mean is exactly 0, the estimate of its square below
    found = gradients.measure(**numbers(negative, 8))
    assert found["signal"] < 0
    assert found["noise_to_signal"]["value"] is None


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_the_quotient_does_not_depend_on_the_scale(scale):
    rows = np.random.default_rng(2).normal(1.0, 1.0, (16, 4))
    one, other = (gradients.measure(**numbers(r, 8)) for r in (rows, rows * scale))
    assert other["noise_to_signal"] == pytest.approx(one["noise_to_signal"])
    assert other["cosine"] == pytest.approx(one["cosine"])
    assert other["noise"]["value"] == pytest.approx(scale**2 * one["noise"]["value"])


def test_running_sums_are_those_of_all_gradients():
    rows = np.random.default_rng(3).normal(size=(10, 7)).astype(np.float32)
    trees = ({"a": jnp.asarray(row[:3]), "b": {"c": jnp.asarray(row[3:])}} for row in rows)
    squares, products = gradients._products(trees, 4)
    expected = numbers(rows.astype(np.float64), 4)
    assert_allclose(squares, expected["squares"], rtol=1e-5)
    assert_allclose(products, expected["products"], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_numbers_do_not_depend_on_the_devices(own, record):
    setup = replace(own.setup, mesh=sharding.make_mesh(2, 2, 1, devices=jax.devices()[:4]))
    there = Policy.of(setup, 0, PARAMS, own.graders, Critic.load(setup, PARAMS, None, 0))
    found = gradients.sample(there, PARAMS, 8)
    assert found["trajectories"] == record["trajectories"]
    for name, numbers in record["estimators"].items():
        assert found["estimators"][name]["tokens"] == numbers["tokens"]
        assert_allclose(found["estimators"][name]["squares"], numbers["squares"], rtol=1e-4)
        ours, theirs = (r["estimators"][name]["products"] for r in (found, record))
        assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3 * np.abs(theirs).max())

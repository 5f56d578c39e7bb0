"""From trajectories to advantages and the first update, against exact values by enumeration."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.train.enumerable import (
    CONFIG,
    EOS,
    LONGEST,
    MODEL,
    PARAMS,
    PROMPT_LENGTH,
    STOP,
    Exact,
    Majority,
    iterate,
    iterations,
    setup_of,
    weights,
    with_values,
)
from vinejax import policy, sampler
from vinejax.arrays import Finish
from vinejax.config import AdvantagesConfig
from vinejax.train import learning, measures, scoring


def states_of(batch, given):
    """(problem id, response tokens so far, estimate) of every state of an iteration."""
    for m, values in enumerate(given.values):
        starts = batch.states[m].starts
        for start, value in zip(starts, values, strict=True):
            yield batch.problems[m].id, tuple(batch.responses[m].tokens[:start].tolist()), value


class Recorder:
    """What `sampler.sample` was asked for and gave, call by call."""

    def __init__(self, monkeypatch):
        self.calls = []
        original = sampler.sample

        def sample(weights, config, trunks, jobs, *args, **kwargs):
            samples = original(weights, config, trunks, jobs, *args, **kwargs)
            self.calls.append((trunks, jobs, samples, kwargs))
            return samples

        monkeypatch.setattr(sampler, "sample", sample)


@pytest.fixture(scope="module")
def exact():
    return Exact(setup_of())


@pytest.mark.parametrize("states", ["step", "token"])
def test_values_are_unbiased_under_the_sampling_distribution_and_its_budget(exact, states):
    setup, runs = iterations(states=states, k=64)
    k = setup.config.values.k
    estimates = defaultdict(dict)
    for iteration, (batch, given) in enumerate(runs):
        for problem, response, value in states_of(batch, given):
            estimates[problem, response][iteration] = value  # equal states of an iteration share it
    scores = []
    for (problem, response), found in estimates.items():
        mean, square = exact.moments(problem, response)
        estimate, variance = np.mean(list(found.values())), square - mean**2
        if variance < 1e-9:  # every continuation has the same reward
            assert_allclose(estimate, mean, atol=1e-6)
        elif len(found) >= 10:
            scores.append((estimate - mean) / np.sqrt(variance / (k * len(found))))
    assert len(scores) >= 8
    assert np.abs(scores).max() < 3
    assert np.std(scores) > 0.4  # the errors that are allowed are no wider than they should be


def test_mean_rewards_of_trajectories_are_the_exact_values_of_their_prompts(exact):
    setup, runs = iterations()
    for problem in exact.problems:
        rewards = [
            r
            for batch, _ in runs
            for p, r in zip(batch.problems, batch.reward, strict=True)
            if p.id == problem
        ]
        sampling = setup.config.sampling
        mean, square = exact.moments(problem, (), sampling.max_new_tokens, sampling.context)
        error = np.sqrt((square - mean**2) / len(rewards))
        assert abs(np.mean(rewards) - mean) < 3 * error


def test_the_budget_of_a_rollout_starts_at_its_state(monkeypatch):
    calls = Recorder(monkeypatch).calls
    setup = setup_of(with_values(states="token"))
    iterate(setup)
    _, jobs, samples, _ = calls[1]
    # 4 new tokens, or what the context of 7 (BOS not counted) leaves behind the prefix.
    assert_array_equal(jobs.max_new_tokens, np.minimum(4, 7 - (jobs.prefix_length - 1)))
    assert set(jobs.max_new_tokens) == {2, 3, 4}
    assert (samples.length <= jobs.max_new_tokens).all()
    whole = jobs.prefix_length - PROMPT_LENGTH + samples.length
    assert whole.max() == LONGEST > setup.config.sampling.max_new_tokens


@pytest.mark.parametrize("k", [1, 4, 16])
def test_the_variance_falls_as_1_over_k_and_unshared_estimates_are_independent(exact, k):
    _, runs = iterations(k=k, deduplicate=False, count=12)
    ratios = []
    for problem in exact.problems:
        mean, square = exact.moments(problem, ())
        variance = (square - mean**2) / k
        # A response that its prompt's first tokens stop has no state, so the groups are uneven.
        groups = [
            np.array([v for p, r, v in states_of(batch, given) if p == problem and not r])
            for batch, given in runs
        ]
        total = np.concatenate(groups)
        assert abs(total.mean() - mean) < 3 * np.sqrt(variance / len(total))
        # Inside an iteration, where estimates that depend on each other would lie too close.
        squares = sum(((group - group.mean()) ** 2).sum() for group in groups)
        ratios.append(squares / (len(total) - len(groups)) / variance)
    # About 300 degrees of freedom: a relative standard error of 0.08.
    assert abs(np.mean(ratios) - 1) < 0.25


def test_equal_states_share_one_estimate_unless_told_otherwise():
    for deduplicate in (True, False):
        _, ((batch, given),) = iterations(deduplicate=deduplicate, count=1)
        estimates = defaultdict(list)
        for problem, response, value in states_of(batch, given):
            estimates[problem, response].append(value)
        spreads = [np.ptp(values) for values in estimates.values() if len(values) > 1]
        assert len(spreads) >= 4
        assert any(spreads) != deduplicate
        states = sum(steps.count for steps in batch.states)
        assert len(given.nodes.mean) == (len(estimates) if deduplicate else states)


@pytest.mark.parametrize("states", ["step", "token", "every:2"])
@pytest.mark.parametrize("max_step", [None, 0, 1])
def test_advantages_telescope_to_reward_minus_the_value_of_the_prompt(states, max_step):
    setup, runs = iterations(states=states, max_step=max_step, count=2)
    for batch, given in runs:
        assert len(batch.responses) == len(given.values) == setup.config.episodes
        for m, (values, steps) in enumerate(zip(given.values, given.step_advantages, strict=True)):
            assert len(values) == len(steps) == batch.states[m].count
            if not len(values):
                continue
            assert_allclose(steps.sum(), batch.reward[m] - values[0], atol=1e-6)
            # The terminal state is worth 0: the last step gets all of the reward.
            assert_allclose(steps[-1], batch.reward[m] - values[-1], atol=1e-6)
            if max_step is not None:
                assert_array_equal(values[max_step + 1 :], batch.reward[m])
                assert_array_equal(steps[max_step + 1 :], 0)


@pytest.mark.parametrize("states", ["step", "token", "every:2"])
def test_all_tokens_of_a_step_share_its_advantage_and_eos_has_the_last(states):
    _, runs = iterations(states=states, max_step=None, count=2)
    ended = 0
    for batch, given in runs:
        for m, response in enumerate(batch.responses):
            tokens, steps = given.token_advantages[m], given.step_advantages[m]
            assert len(tokens) == len(response.tokens)
            assert_array_equal(tokens, steps[batch.states[m].of_token])
            if states == "token":
                assert_array_equal(tokens, steps)
            if response.finish == Finish.EOS and not batch.truncated[m]:
                ended += 1
                assert response.tokens[-1] == EOS
                assert tokens[-1] == steps[-1]
    assert ended


def test_states_are_only_prefixes_before_the_last_step(monkeypatch):
    calls = Recorder(monkeypatch).calls
    batch, given = iterate(setup_of())
    _, jobs, _, _ = calls[1]
    asked = set(zip(jobs.trunk.tolist(), jobs.prefix_length.tolist(), strict=True))
    assert len(asked) == len(given.nodes.mean)
    for trunk, prefix in asked:
        assert prefix - PROMPT_LENGTH in batch.steps[trunk].starts
        assert prefix < len(batch.tokens[trunk])


def test_prompt_and_padding_have_advantage_0():
    _, ((batch, given), *_) = iterations()
    rows = learning._rows(batch, given, given.old)
    at = np.arange(rows["tokens"].shape[1])
    is_response = (at >= PROMPT_LENGTH) & (at < rows["length"][:, None])
    assert_array_equal(rows["is_response"], is_response)
    assert (rows["advantages"][~is_response] == 0).all()
    assert_array_equal(rows["advantages"][is_response], np.concatenate(given.token_advantages))
    assert_array_equal(
        rows["tokens"][is_response], np.concatenate([r.tokens for r in batch.responses])
    )


def test_truncated_rollouts_are_worth_0_and_counted(monkeypatch):
    calls = Recorder(monkeypatch).calls
    setup = setup_of()
    batch, given = iterate(setup)
    trunks, jobs, samples, _ = calls[1]
    k, task, tokenizer = setup.config.values.k, setup.task, setup.tokenizer
    rewards, is_cut, would_have_counted = [], [], 0
    for j, finish in enumerate(samples.finish):
        response = [
            *trunks.tokens[jobs.trunk[j]][PROMPT_LENGTH : jobs.prefix_length[j]],
            *samples.tokens[j, : samples.length[j]],
        ]
        text = tokenizer.decode(response).partition(STOP)[0]
        is_cut.append(finish == Finish.LENGTH or text.startswith("\n"))
        grade = task.grade(batch.problems[jobs.trunk[j]], text)
        rewards.append(0 if is_cut[-1] else grade)
        would_have_counted += is_cut[-1] and grade > 0
    assert would_have_counted
    assert_allclose(given.nodes.mean, np.reshape(rewards, (-1, k)).mean(axis=1))
    assert_allclose(given.nodes.truncated_share, np.reshape(is_cut, (-1, k)).mean(axis=1))
    assert_array_equal(given.nodes.count, k)


def test_truncated_trajectories_are_worth_0():
    seen = set()
    for batch, _ in iterations()[1]:
        for m, response in enumerate(batch.responses):
            is_cut = response.finish == Finish.LENGTH or response.text.startswith("\n")
            assert batch.truncated[m] == is_cut
            grade = Majority().grade(batch.problems[m], response.text)
            assert batch.reward[m] == (0 if is_cut else grade)
            seen.add((Finish(response.finish).name, bool(is_cut), float(grade)))
    assert {("LENGTH", True, 1.0), ("EOS", True, 1.0), ("STOP", False, 0.5)} <= seen


def test_empty_and_stopped_responses_are_kept_and_counted():
    setup, runs = iterations()
    kinds = defaultdict(int)
    for batch, given in runs:
        assert len(batch.responses) == setup.config.episodes
        for m, response in enumerate(batch.responses):
            assert STOP not in response.text
            assert response.text == setup.tokenizer.decode(response.tokens.tolist())
            if response.finish == Finish.STOP:
                kinds["stopped"] += 1
            if response.text:
                continue
            # The end of sequence comes first, or a stop string, which leaves no token.
            name = "no text" if len(response.tokens) else "no token"
            kinds[name] += 1
            assert not batch.answered[m]
            assert batch.reward[m] == (0 if response.finish == Finish.LENGTH else 0.5)
            assert len(given.values[m]) == (name == "no text")
    assert min(kinds[name] for name in ("stopped", "no token", "no text")) > 0


def test_metrics_of_an_iteration_with_empty_responses_are_finite():
    setup, runs = iterations()
    batch, given = next((b, c) for b, c in runs if any(not len(r.tokens) for r in b.responses))
    numbers = measures.of_iteration(batch, given, {"tokens": 1.0}, 0)
    assert all(np.isfinite(v) for v in numbers.values())
    assert numbers["tokens_prefilled_values"] == 0
    assert numbers["rollouts"] == setup.config.values.k * numbers["states"]
    assert numbers["no_answer_share"] == np.mean([not r.text for r in batch.responses])
    records = measures.rollout_records(batch, given, setup.tokenizer, 2)
    assert len(records) == setup.config.episodes
    assert sum("text" in record for record in records) == 2


def test_what_is_read_of_a_trajectory_fits_its_numbers():
    setup, runs = iterations()
    read = 0
    for batch, given in runs:
        records = measures.rollout_records(batch, given, setup.tokenizer)
        shown = [record for record in records if "text" in record]
        assert len({record["problem"] for record in shown}) == min(8, setup.config.prompts)
        for record in shown:
            text, starts, prompt = record["text"], record["text_starts"], record["prompt_length"]
            assert len(starts) == len(record["rollouts"]) == len(record["values"])
            for start, at in zip(record["state_starts"], starts, strict=True):
                before = record["tokens"][prompt : prompt + start]
                assert setup.tokenizer.decode(before)[: len(text)] == text[:at]
            for value, rollouts in zip(record["values"], record["rollouts"], strict=True):
                assert len(rollouts) == setup.config.values.k
                mean = np.mean([rollout["reward"] for rollout in rollouts])
                assert mean == pytest.approx(value, abs=1e-5)
                read += len(rollouts)
    assert read > 0


def test_nothing_is_prefilled_in_the_value_phase():
    _, runs = iterations()
    for batch, given in runs:
        assert given.counters.tokens_prefilled == 0
        assert given.counters.tokens_sampled > 0
        assert batch.counters.tokens_prefilled == 4 * PROMPT_LENGTH


def test_rollouts_of_a_prompt_are_not_its_trajectories(monkeypatch):
    """Value rollouts have keys of their own: sample k of the prompt is not trajectory k again."""
    calls = Recorder(monkeypatch).calls
    setup = setup_of(with_values(k=8))
    same = []
    for iteration in range(4):
        batch, _ = iterate(setup, iteration)
        _, jobs, samples, _ = calls[-1]
        own = {  # by prompt and sample
            (batch.problems[t].id, k): samples.tokens[j, : samples.length[j]].tolist()
            for j, (t, p, k) in enumerate(
                zip(jobs.trunk, jobs.prefix_length, jobs.sample, strict=True)
            )
            if p == PROMPT_LENGTH
        }
        _, jobs, samples, _ = calls[-2]
        same += [
            own[batch.problems[j].id, k] == samples.tokens[j, : samples.length[j]].tolist()
            for j, k in enumerate(jobs.sample)
        ]
    assert len(same) == 128
    assert np.mean(same) < 0.3


def test_an_iteration_draws_other_samples_than_the_one_before():
    _, runs = iterations()
    texts = [[r.text for r in batch.responses] for batch, _ in runs[:2]]
    assert texts[0] != texts[1]
    assert [list(v) for v in runs[0][1].values] != [list(v) for v in runs[1][1].values]


def by_problem(batch, given):
    """Responses, values and advantages of each problem."""
    found = defaultdict(list)
    for m, problem in enumerate(batch.problems):
        found[problem.id].append(
            (
                batch.responses[m].tokens.tolist(),
                given.values[m].tolist(),
                given.token_advantages[m].tolist(),
            )
        )
    return dict(found)


@pytest.mark.parametrize("deduplicate", [True, False])
@pytest.mark.parametrize("wave", [8, 16])
def test_values_do_not_depend_on_the_wave(wave, deduplicate):
    _, ((batch, given), *_) = iterations(deduplicate=deduplicate, count=1)
    config = with_values(deduplicate=deduplicate)
    config = replace(config, engine=replace(CONFIG.engine, wave=wave))
    setup = setup_of(config)
    assert setup.wave == wave
    assert by_problem(*iterate(setup)) == by_problem(batch, given)


@pytest.mark.parametrize("deduplicate", [True, False])
def test_values_do_not_depend_on_the_other_prompts_of_the_batch(deduplicate):
    _, ((batch, given), *_) = iterations(deduplicate=deduplicate, count=1)
    expected = by_problem(batch, given)
    config = with_values(deduplicate=deduplicate)
    for ids in ("3", "21"):
        found = by_problem(*iterate(setup_of(config, ids)))
        assert set(found) == set(ids)
        for problem, rows in found.items():
            assert rows == expected[problem]


def test_problems_with_the_same_prompt_have_values_of_their_own(exact):
    """What a text is worth depends on the answer that is wanted."""
    assert abs(exact.moments("1", ())[0] - exact.moments("3", ())[0]) > 0.1
    _, runs = iterations()
    for problem in "13":
        first = [v for b, c in runs for p, r, v in states_of(b, c) if p == problem and not r]
        assert abs(np.mean(first) - exact.moments(problem, ())[0]) < 0.1


def test_permuting_keeps_the_sum_and_changes_the_order():
    _, ((batch, given),) = iterations(states="token", count=1)
    config = replace(with_values(states="token"), advantages=AdvantagesConfig(permute=True))
    permuted_batch, permuted = iterate(setup_of(config))
    assert_array_equal(permuted_batch.reward, batch.reward)
    moved = 0
    for m, steps in enumerate(given.step_advantages):
        assert_array_equal(permuted.values[m], given.values[m])
        assert_array_equal(np.sort(permuted.step_advantages[m]), np.sort(steps))
        moved += (permuted.step_advantages[m] != steps).any()
        assert_array_equal(permuted.token_advantages[m], permuted.step_advantages[m])
    assert moved > len(batch.responses) / 4
    again = iterate(setup_of(config))[1]
    for a, b in zip(again.step_advantages, permuted.step_advantages, strict=True):
        assert_array_equal(a, b)


def test_sampler_and_scorer_agree_and_scores_are_those_of_the_policy():
    setup, runs = iterations()
    for batch, given in runs[:4]:
        assert measures.sampler_scorer_gap(batch, given.old).max() < 1e-4
        width = max(len(t) for t in batch.tokens)
        alone, cache = scoring.score(weights(), MODEL, batch.tokens, 0.8, width, keep_cache=False)
        assert cache is None
        for m, (prompt, whole) in enumerate(zip(batch.prompts, batch.tokens, strict=True)):
            response = slice(len(prompt), len(whole))
            assert_allclose(given.old.logp[m, response], alone.logp[m, response], atol=1e-6)
            assert not given.old.logp[m, : len(prompt)].any()
        assert given.old.tokens == sum(len(t) for t in batch.tokens)
    temperature = setup.config.sampling.temperature
    tokens, first = batch.tokens[0], len(batch.prompts[0])
    logits = np.asarray(policy.forward(PARAMS, MODEL, tokens[None]), np.float64)[0] / temperature
    logp = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    expected = logp[np.arange(len(tokens) - 1), tokens[1:]]
    assert_allclose(given.old.logp[0, first : len(tokens)], expected[first - 1 :], atol=1e-4)


def learn(setup, batch, given):
    """One iteration's updates with the sampling policy as reference; metrics and parameters."""
    learner = learning.Learner(setup, PARAMS, Path("nowhere"))
    return learner.learn(0, batch, given, given.old), jax.device_get(learner.state.params)


def test_the_first_update_of_an_iteration_has_ratio_1_and_clips_nothing():
    update = replace(CONFIG.update, epochs=1, minibatch=32, microbatch=32)
    _, ((batch, given), *_) = iterations()
    metrics, _ = learn(setup_of(replace(CONFIG, update=update)), batch, given)
    assert_allclose([metrics["ratio"], metrics["ratio_max"]], 1, atol=1e-4)
    assert metrics["clip_fraction"] == metrics["guarded"] == 0
    assert abs(metrics["approx_kl"]) < 1e-6
    assert abs(metrics["kl_k3"]) < 1e-6
    assert metrics["tokens"] == sum(len(r.tokens) for r in batch.responses)
    assert metrics["sequences"] == sum(len(r.tokens) > 0 for r in batch.responses)
    assert metrics["grad_norm"] > 0


def test_without_learning_rate_no_parameter_changes_and_every_ratio_stays_1():
    update = replace(CONFIG.update, learning_rate=0.0, kl=0.1)
    _, ((batch, given), *_) = iterations()
    metrics, params = learn(setup_of(replace(CONFIG, update=update)), batch, given)
    jax.tree.map(assert_array_equal, params, jax.device_get(PARAMS))
    assert_allclose(metrics["ratio_max"], 1, atol=1e-4)
    assert metrics["clip_fraction"] == 0
    assert metrics["tokens"] == 2 * sum(len(r.tokens) for r in batch.responses)

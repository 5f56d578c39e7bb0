"""Named choices that change what is sampled, rewarded or trained: both variants of each."""

from dataclasses import replace

import numpy as np
from numpy.testing import assert_array_equal

from tests.train.enumerable import (
    CONFIG,
    EOS,
    PROMPT_LENGTH,
    iterate,
    setup_of,
    with_values,
)
from vinejax.arrays import Finish
from vinejax.train import credit, learning, measures


def iteration(**sampling):
    """An iteration with other `sampling`, by the token, so that many rollouts are cut off."""
    config = with_values(states="token", deduplicate=False)
    setup = setup_of(replace(config, sampling=replace(config.sampling, **sampling)))
    return setup, *iterate(setup)


def budgets(monkeypatch, budget):
    """Prefix lengths and new tokens of the rollouts of an iteration."""
    seen = []
    original = credit.sampler.sample

    def sample(weights, config, trunks, jobs, *args, **kwargs):
        seen.append(jobs)
        return original(weights, config, trunks, jobs, *args, **kwargs)

    monkeypatch.setattr(credit.sampler, "sample", sample)
    _, given = iterate(setup_of(with_values(states="token", budget=budget)))
    return seen[1].prefix_length - PROMPT_LENGTH, seen[1].max_new_tokens, given


def test_rollouts_have_the_whole_budget_or_what_is_left_of_it(monkeypatch):
    before, most, whole = budgets(monkeypatch, "state")
    context = CONFIG.values.context - (PROMPT_LENGTH - 1)
    assert_array_equal(most, np.minimum(4, context - before))
    monkeypatch.undo()
    before, most, left = budgets(monkeypatch, "remaining")
    assert_array_equal(most, 4 - before)  # a rollout ends where its trajectory would have
    assert len(set(most)) == 4
    assert left.nodes.truncated_share.mean() > whole.nodes.truncated_share.mean()


def test_a_truncation_reward_is_that_of_trajectories_and_rollouts():
    _, zero, of_zero = iteration(truncation_reward=0.0)
    _, batch, given = iteration(truncation_reward=-0.5)
    assert 0 < batch.truncated.sum() < len(batch.truncated)
    assert_array_equal(batch.reward, np.where(batch.truncated, -0.5, zero.reward))
    share = given.nodes.truncated_share
    assert share.max() > 0
    np.testing.assert_allclose(given.nodes.mean, of_zero.nodes.mean - 0.5 * share, atol=1e-6)
    for m, steps in enumerate(given.step_advantages):
        if len(steps):
            np.testing.assert_allclose(steps.sum(), batch.reward[m] - given.values[m][0], atol=1e-6)


def ended_by_itself(batch):
    """Responses that ended with EOS and have no answer mark, which for `Majority` is to begin with
    a newline."""
    return [r for r in batch.responses if r.finish == Finish.EOS and r.text.startswith("\n")]


def test_the_end_of_an_unfinished_response_is_dropped_or_kept():
    _, batch, _ = iteration(unfinished_eos="kept")
    kept = ended_by_itself(batch)
    assert kept
    assert all(r.tokens[-1] == EOS for r in kept)
    setup, batch, given = iteration(unfinished_eos="dropped")
    dropped = ended_by_itself(batch)
    for with_end, without in zip(kept, dropped, strict=True):
        assert_array_equal(without.tokens, with_end.tokens[:-1])
        assert_array_equal(without.logprob, with_end.logprob[:-1])
    finished = [r for r in batch.responses if r.finish == Finish.EOS and r.text[:1] != "\n"]
    assert all(r.tokens[-1] == EOS for r in finished)
    assert len(batch.responses) == setup.config.episodes
    assert measures.sampler_scorer_gap(batch, given.old).max() < 1e-4


def test_behind_a_stop_string_an_end_is_trained_only_if_asked_for():
    _, batch, _ = iteration(append_eos="never")
    stopped = [m for m, r in enumerate(batch.responses) if r.finish == Finish.STOP]
    assert stopped
    assert all(EOS not in batch.responses[m].tokens for m in stopped)
    _, appended, given = iteration(append_eos="trained")
    rows = learning._rows(appended, given, given.old)
    for m in stopped:
        before, after = batch.responses[m], appended.responses[m]
        if appended.truncated[m]:  # not finished: no end
            assert_array_equal(after.tokens, before.tokens)
            continue
        assert_array_equal(after.tokens, [*before.tokens, EOS])
        assert len(after.logprob) == len(before.tokens)  # what was sampled
        last = rows["length"][m] - 1
        assert rows["tokens"][m, last] == EOS
        assert rows["is_response"][m, last]
        assert rows["advantages"][m, last] == given.step_advantages[m][-1]
        assert rows["old_logp"][m, last] < 0
    assert measures.sampler_scorer_gap(appended, given.old).max() < 1e-4


def test_an_appended_end_has_the_advantage_of_the_last_step():
    setup = setup_of(replace(CONFIG, sampling=replace(CONFIG.sampling, append_eos="trained")))
    batch, given = iterate(setup)
    found = 0
    for m, response in enumerate(batch.responses):
        if response.finish == Finish.STOP and len(response.tokens) > 1 and not batch.truncated[m]:
            assert given.token_advantages[m][-1] == given.token_advantages[m][-2]
            assert batch.steps[m].count == len(set(batch.steps[m].of_token))
            found += 1
    assert found


def test_no_end_is_appended_beyond_the_longest_sequence():
    setup = setup_of(
        replace(
            CONFIG,
            sampling=replace(CONFIG.sampling, append_eos="trained"),
            update=replace(CONFIG.update, max_sequence=PROMPT_LENGTH + 2),
        )
    )
    batch, _ = iterate(setup)
    lengths = [len(tokens) for tokens in batch.tokens]
    assert max(lengths) == PROMPT_LENGTH + 2

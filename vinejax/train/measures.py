"""The numbers of one iteration, as they go to metrics.jsonl and TensorBoard."""

from typing import Any

import numpy as np

from vinejax.arrays import Finish
from vinejax.sampler import Counters
from vinejax.tokenizer import Tokenizer
from vinejax.train.credit import Credit
from vinejax.train.scoring import Scored
from vinejax.train.trajectories import TEXTS_KEPT, Trajectories, with_texts
from vinejax.vine import Values


def of_iteration(
    batch: Trajectories,
    credit: Credit,
    learned: dict[str, float],
    reference_tokens: int,
) -> dict[str, Any]:
    """All metrics of a policy gradient but `iteration`, the evaluation and `time/*`.

    Those of values measured by rollouts are there where `credit` has such. What `learned` counts as
    tokens_*_critic is part of the count without that ending.
    """
    step = np.concatenate(credit.step_advantages)
    scored = credit.old.tokens + reference_tokens + learned.get("tokens_scored_critic", 0)
    trained = learned["tokens"] + learned.get("tokens_trained_critic", 0)
    return {
        **of_sampling(batch, credit.old, credit.counters),
        "advantage_spread": float(step.std()) if len(step) else 0.0,
        "zero_advantage_share": float((step == 0).mean()) if len(step) else 1.0,
        **({} if credit.nodes is None else _of_values(credit.nodes, credit)),
        **learned,
        "tokens_scored": int(scored),
        "tokens_trained": int(trained),
    }


def _of_values(nodes: Values, credit: Credit) -> dict[str, Any]:
    """What Monte Carlo samples said about the states, and what they cost.

    A state has `samples_per_state` of them; those that were not launched there are pooled.
    """
    counters, count = credit.counters, int(nodes.count.sum())
    rollouts = count if credit.rollouts is None else int(credit.rollouts.sum())
    truncated = (nodes.truncated_share * nodes.count).sum() / max(count, 1)
    return {
        "states": len(nodes.mean),
        "states_left_out": credit.left_out,
        "rollouts": rollouts,
        "rollouts_truncated_share": float(truncated),
        "samples_per_state": count / max(len(nodes.mean), 1),
        "pooled_share": 1 - rollouts / count if count else 0.0,
        "value": float(nodes.mean.mean()) if len(nodes.mean) else 0.0,
        "value_stderr": float(nodes.stderr.mean()) if len(nodes.mean) else 0.0,
        "tokens_prefilled_values": counters.tokens_prefilled,
        "tokens_sampled_values": counters.tokens_sampled,
        "slot_utilisation_values": counters.slot_utilisation,
    }


def of_sampling(batch: Trajectories, old: Scored, vines: Counters | None = None) -> dict[str, Any]:
    """What every method says about its samples; `old` are their scores by the sampling policy.

    The tokens are those of the trajectories and of `vines` together.
    """
    length = np.array([len(r.tokens) for r in batch.responses])
    gap = sampler_scorer_gap(batch, old)
    sampled = [r for r in batch.responses if len(r.tokens)]
    kept = (
        np.concatenate([np.exp(r.logprob_full - r.logprob) for r in sampled])
        if sampled
        else np.ones(1)
    )
    counters = Counters()
    counters += batch.counters
    if vines is not None:
        counters += vines
    return {
        "reward": float(batch.reward.mean()),
        "pass_at_1": float(np.where(batch.truncated, 0, batch.reward.astype(np.float64)).mean()),
        "full_marks_share": float((batch.reward >= 1).mean()),
        "response_tokens": float(length.mean()),
        "response_tokens_p95": float(np.percentile(length, 95)),
        "truncated_share": float(batch.truncated.mean()),
        "no_answer_share": 1 - float(batch.answered.mean()),
        "error_share": float(np.mean([r.finish == Finish.ERROR for r in batch.responses])),
        "steps": float(np.mean([s.count for s in batch.steps])),
        "step_failures": batch.step_failures,
        "boundaries_moved": int(sum(s.moved for s in batch.steps)),
        "kept_mass": float(kept.mean()),
        "sampler_scorer_gap": float(gap.mean()),
        "sampler_scorer_gap_max": float(gap.max()),
        "tokens_prefilled": counters.tokens_prefilled,
        "tokens_sampled": counters.tokens_sampled,
        "tokens_scored": old.tokens,
        "padding_share_scoring": 1 - old.tokens / max(old.processed, 1),
        "tokens_trained": 0,
        "slot_utilisation": counters.slot_utilisation,
        "rerooted": counters.rerooted,
    }


def of_policy(batch: Trajectories, old: Scored, reference: Scored) -> dict[str, Any]:
    """Entropy and KL to the start of a policy that an iteration does not update, nats a token."""
    gap, entropy = np.zeros(0), np.zeros(0)
    for m, (prompt, response) in enumerate(zip(batch.prompts, batch.responses, strict=True)):
        own = slice(len(prompt), len(prompt) + len(response.tokens))
        gap = np.append(gap, reference.logp[m, own].astype(np.float64) - old.logp[m, own])
        entropy = np.append(entropy, old.entropy[m, own])
    tokens = max(len(gap), 1)
    return {
        "entropy": float(entropy.sum() / tokens),
        "kl_k1": float(-gap.sum() / tokens),
        "kl_k3": float((np.expm1(gap) - gap).sum() / tokens),
        "tokens_scored": old.tokens + reference.tokens,
    }


def sampler_scorer_gap(batch: Trajectories, old: Scored) -> np.ndarray:
    """Absolute log-probability differences of sampler and scorer, all sampled tokens; nats."""
    gaps = [
        np.abs(r.logprob_full - old.logp[m, len(p) : len(p) + len(r.logprob_full)])
        for m, (p, r) in enumerate(zip(batch.prompts, batch.responses, strict=True))
    ]
    return np.concatenate([*gaps, np.zeros(1, np.float32)])


def rollout_records(
    batch: Trajectories, credit: Credit | None, tokenizer: Tokenizer, texts: int = TEXTS_KEPT
) -> list[dict[str, Any]]:
    """What was sampled, one record a trajectory; the texts of `texts` of them.

    Values and advantages are those of the states, where `credit` has them; so are `rollouts`, the
    reward and text of each that was launched at a state, in records with a text. `text_starts` says
    where in the text the states start.
    """
    values = None if credit is None else credit.values
    given = None if credit is None else credit.step_advantages
    shown = set(with_texts(batch.problems, texts))
    return [
        {
            "problem": batch.problems[m].id,
            "policy_step": batch.policy_step,
            "prompt_length": len(prompt),
            "tokens": [*prompt.tolist(), *response.tokens.tolist()],
            "step_starts": batch.steps[m].starts.tolist(),
            "state_starts": batch.states[m].starts.tolist(),
            **({} if values is None else {"values": _short(values[m])}),
            **({} if given is None else {"advantages": _short(given[m])}),
            "reward": float(batch.reward[m]),
            "finish": Finish(response.finish).name.lower(),
            "unfinished": bool(batch.truncated[m]),
            **(_texts(batch, credit, tokenizer, m) if m in shown else {}),
        }
        for m, (prompt, response) in enumerate(zip(batch.prompts, batch.responses, strict=True))
    ]


def _texts(
    batch: Trajectories, credit: Credit | None, tokenizer: Tokenizer, m: int
) -> dict[str, Any]:
    """The part of trajectory m's record that people read."""
    response, problem = batch.responses[m], batch.problems[m]
    at = tokenizer.char_starts(response.tokens.tolist())
    continuations = None if credit is None else credit.continuations.get(m)
    return {
        "text": response.text,
        "text_starts": [at[start] for start in batch.states[m].starts],
        "problem_text": problem.problem,
        "solution": problem.solution,
        **(
            {}
            if continuations is None
            else {"rollouts": [[vars(c) for c in own] for own in continuations]}
        ),
    }


def _short(numbers: np.ndarray) -> list[float]:
    return [round(float(x), 6) for x in numbers]

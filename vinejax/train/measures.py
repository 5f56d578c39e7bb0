"""The numbers of one iteration, as they go to metrics.jsonl and TensorBoard."""

from typing import Any

import numpy as np

from vinejax.arrays import Finish
from vinejax.sampler import Counters
from vinejax.train.credit import Credit
from vinejax.train.trajectories import Trajectories

# Mean and largest difference in nats between sampler and scorer above which something is wrong with
# one of them (verl's and TRL's experience: rounding to bfloat16 alone gives 0.01 and 0.1).
GAP_MEAN, GAP_MAX = 0.02, 0.5


def of_iteration(
    batch: Trajectories,
    credit: Credit,
    learned: dict[str, float],
    reference_tokens: int,
) -> dict[str, Any]:
    """All metrics but `iteration`, the evaluation and `time/*`."""
    length = np.array([len(r.tokens) for r in batch.responses])
    step = np.concatenate(credit.step_advantages)
    rollouts = credit.nodes.count.sum()
    gap = sampler_scorer_gap(batch, credit)
    sampled = [r for r in batch.responses if len(r.tokens)]
    kept = (
        np.concatenate([np.exp(r.logprob_full - r.logprob) for r in sampled])
        if sampled
        else np.ones(1)
    )
    counters = Counters()
    counters += batch.counters
    counters += credit.counters
    return {
        "reward": float(batch.reward.mean()),
        "pass_at_1": float((batch.reward >= 1).mean()),
        "response_tokens": float(length.mean()),
        "response_tokens_p95": float(np.percentile(length, 95)),
        "truncated_share": float(batch.truncated.mean()),
        "no_answer_share": 1 - float(batch.answered.mean()),
        "error_share": float(np.mean([r.finish == Finish.ERROR for r in batch.responses])),
        "steps": float(np.mean([s.count for s in batch.steps])),
        "step_failures": batch.step_failures,
        "boundaries_moved": int(sum(s.moved for s in batch.steps)),
        "states": len(credit.nodes.mean),
        "rollouts": int(rollouts),
        "rollouts_truncated_share": float(
            (credit.nodes.truncated_share * credit.nodes.count).sum() / max(rollouts, 1)
        ),
        "value": float(credit.nodes.mean.mean()) if len(credit.nodes.mean) else 0.0,
        "value_stderr": float(credit.nodes.stderr.mean()) if len(credit.nodes.mean) else 0.0,
        "advantage_spread": float(step.std()) if len(step) else 0.0,
        "zero_advantage_share": float((step == 0).mean()) if len(step) else 1.0,
        "kept_mass": float(kept.mean()),
        "sampler_scorer_gap": float(gap.mean()),
        "sampler_scorer_gap_max": float(gap.max()),
        **learned,
        "tokens_prefilled": counters.tokens_prefilled,
        "tokens_prefilled_values": credit.counters.tokens_prefilled,
        "tokens_sampled": counters.tokens_sampled,
        "tokens_sampled_values": credit.counters.tokens_sampled,
        "tokens_scored": credit.old.tokens + reference_tokens,
        "tokens_trained": int(learned["tokens"]),
        "slot_utilisation": counters.slot_utilisation,
        "slot_utilisation_values": credit.counters.slot_utilisation,
        "rerooted": counters.rerooted,
    }


def sampler_scorer_gap(batch: Trajectories, credit: Credit) -> np.ndarray:
    """Absolute log-probability differences of sampler and scorer, all sampled tokens; nats."""
    gaps = [
        np.abs(r.logprob_full - credit.old.logp[m, len(p) : len(p) + len(r.logprob_full)])
        for m, (p, r) in enumerate(zip(batch.prompts, batch.responses, strict=True))
    ]
    return np.concatenate([*gaps, np.zeros(1, np.float32)])


def warnings(metrics: dict[str, Any]) -> list[str]:
    """What a person should look at."""
    found = []
    mean, largest = metrics["sampler_scorer_gap"], metrics["sampler_scorer_gap_max"]
    if not (mean <= GAP_MEAN and largest <= GAP_MAX):  # a gap that is no number, too
        found.append(
            f"sampler and scorer disagree by {mean:.3f} nats a token (at most {largest:.2f}): "
            "they do not compute the same policy"
        )
    if metrics["error_share"] > 0:
        found.append(
            f"{metrics['error_share']:.0%} of the responses ended in an error: "
            "the policy's logits are not finite"
        )
    return found


def rollout_records(batch: Trajectories, credit: Credit, texts: int) -> list[dict[str, Any]]:
    """What was sampled, one record a trajectory; the texts of the first `texts` of them."""
    return [
        {
            "problem": batch.problems[m].id,
            "policy_step": batch.policy_step,
            "prompt_length": len(prompt),
            "tokens": [*prompt.tolist(), *response.tokens.tolist()],
            "step_starts": batch.steps[m].starts.tolist(),
            "state_starts": batch.states[m].starts.tolist(),
            "values": [round(float(v), 6) for v in credit.values[m]],
            "advantages": [round(float(a), 6) for a in credit.step_advantages[m]],
            "reward": float(batch.reward[m]),
            "finish": Finish(response.finish).name.lower(),
            "unfinished": bool(batch.truncated[m]),
            **(
                {"text": response.text, "problem_text": batch.problems[m].problem}
                if m < texts
                else {}
            ),
        }
        for m, (prompt, response) in enumerate(zip(batch.prompts, batch.responses, strict=True))
    ]

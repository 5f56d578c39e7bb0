"""`ledger` with chains of 12 facts: more steps that an outcome could be due to.

What it shows   the same as `tiny`, with half as many steps more that an outcome could be due to.
                At equal episodes VinePPO ends above GRPO and PPO; in CPU-seconds it comes to PPO's
                best in 6 tenths of PPO's, to GRPO's best with pooled values in about GRPO's
                (docs/results.md).
Hardware        two CPU cores: SFT, 5 minutes on one of them; 50 iterations of VinePPO, 1.7
                CPU-seconds each with K = 3; evaluation.
Expected        pass@1 after 30 iterations .61, .84, .85 for seeds 21 to 23, GRPO .49, .80, .74.
Command         python -m experiments.run --config=ledger_long --resume
"""

from dataclasses import replace

from experiments.configs import tiny
from vinejax.config import Config, LedgerOptions

# A prompt has 2 x 12 + 3 tokens and a response 7 x 12 + 2; the budgets leave room for a few more.
PROMPT, RESPONSE, CONTEXT = 32, 92, 128


def config(algorithm: str = "vineppo") -> Config:
    """`tiny` with longer chains, which take half as much SFT more to learn.

    Demonstrations are right as often as those of `tiny`: (1 - 0.2765 / 2)^12 = 0.8^8 = 17 %.
    """
    base = tiny.config(algorithm)
    room = {"max_new_tokens": RESPONSE, "context": CONTEXT}
    options = LedgerOptions(length=12, sloppy=0.2765, wrong=0.5, sft_size=4000, train_size=2000)
    return replace(
        base,
        name="ledger_long",
        task=replace(base.task, options=options, max_prompt_tokens=PROMPT),
        sampling=replace(base.sampling, **room),
        values=replace(base.values, context=CONTEXT),
        update=replace(base.update, max_sequence=CONTEXT),
        sft=replace(base.sft, epochs=12, max_length=CONTEXT),
        evaluation=replace(base.evaluation, **room),
    )

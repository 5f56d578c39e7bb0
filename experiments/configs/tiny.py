"""VinePPO on the embedded `ledger` task with a model of 0.2 million parameters, from nothing.

What it shows   a policy taught by sloppy demonstrations (pass@1 about 0.15) learns the task from
                rewards alone. No data, no download: the task generates itself.
Hardware        two CPU cores, about 4 minutes: SFT, 50 iterations of VinePPO, evaluation.
Expected        pass@1 on held-out problems 0.67 (seed 0) to 0.91; README.md has what was measured.
Command         python -m experiments.run --config=tiny --resume
"""

from vinejax.config import (
    Architecture,
    CheckpointConfig,
    Config,
    EngineConfig,
    EvaluationConfig,
    LedgerOptions,
    PolicyConfig,
    RestemConfig,
    SamplingConfig,
    SftConfig,
    TaskConfig,
    UpdateConfig,
    ValuesConfig,
    with_algorithm,
)

# 8 operations: a prompt of 19 tokens (BOS, 17 characters, end of prompt) and a response of 58
# (8 lines of 6, answer mark, 8 digits, EOS). The budgets leave room for a few wasted tokens.
PROMPT, RESPONSE, CONTEXT = 24, 64, 96


def config(algorithm: str = "vineppo") -> Config:
    """16 problems x 4 trajectories an iteration, 3 rollouts a state, 200 updates in all."""
    setup = Config(
        name="tiny",
        iterations=50,
        prompts=16,
        samples=4,
        policy=PolicyConfig(
            architecture=Architecture(
                hidden=96, layers=2, heads=4, kv_heads=2, head_dim=24, ffn=256, tied=False
            ),
            compute_dtype="float32",
            remat="none",
        ),
        task=TaskConfig(
            name="ledger",
            options=LedgerOptions(length=8, sloppy=0.4, wrong=0.5, sft_size=4000, train_size=2000),
            max_prompt_tokens=PROMPT,
        ),
        sampling=SamplingConfig(
            temperature=1.0, top_p=1.0, max_new_tokens=RESPONSE, context=CONTEXT
        ),
        values=ValuesConfig(k=3, context=CONTEXT),
        update=UpdateConfig(
            epochs=2,
            minibatch=32,
            microbatch=32,
            learning_rate=2e-4,
            warmup="linear",
            warmup_ratio=0.05,  # 10 of 200 updates
            decay="constant",
            b2=0.99,
            max_sequence=CONTEXT,
        ),
        restem=RestemConfig(rounds=5),
        sft=SftConfig(
            epochs=8,  # 1,000 steps over 4,000 demonstrations
            batch=32,
            microbatch=32,
            learning_rate=3e-3,
            warmup_ratio=0.1,
            decay="cosine",
            b2=0.98,
            weight_decay=0.01,
            max_length=CONTEXT,
        ),
        evaluation=EvaluationConfig(
            every=10,
            problems=128,
            test_problems=256,
            samples=4,
            temperature=1.0,
            top_p=1.0,
            max_new_tokens=RESPONSE,
            context=CONTEXT,
        ),
        checkpoint=CheckpointConfig(every=10, keep=2),
        engine=EngineConfig(rows=16, slots=4, trunks=1),  # a row's vines end together here
    )
    return with_algorithm(setup, algorithm)

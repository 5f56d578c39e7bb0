"""VinePPO on GSM8K from SmolLM2-135M as it is, in sizes that a CPU can do.

What it shows   that the whole path works with a pretrained model and real problems. It is no
                attempt at a good score: the base model solves a few per cent of GSM8K, and ten
                iterations of 16 trajectories do not change that measurably.
Hardware        a CPU with 8 GB of memory, some minutes an iteration; seconds on a GPU.
Expected        finite metrics, rewards mostly 0. For results, raise the sizes with flags (on an
                accelerator) or take gsm8k_rho1b.
Command         python -m experiments.run --config=gsm8k_smollm2 \\
                    --config.policy.path=FOLDER --config.task.path=DIR
                FOLDER holds model and tokenizer (default: HuggingFaceTB/SmolLM2-135M of the hub),
                DIR gsm8k_train.jsonl[.gz] and gsm8k_test.jsonl[.gz] (default: openai/gsm8k).
"""

from vinejax.config import (
    CheckpointConfig,
    Config,
    DpoConfig,
    EvaluationConfig,
    Gsm8kOptions,
    PolicyConfig,
    RestemConfig,
    SamplingConfig,
    SftConfig,
    TaskConfig,
    UpdateConfig,
    ValuesConfig,
    with_algorithm,
)


def config(algorithm: str = "vineppo") -> Config:
    """4 problems x 4 trajectories an iteration, 3 rollouts a state, no SFT."""
    setup = Config(
        name="gsm8k_smollm2",
        iterations=10,
        prompts=4,
        samples=4,
        policy=PolicyConfig(path="HuggingFaceTB/SmolLM2-135M"),
        task=TaskConfig(name="gsm8k", options=Gsm8kOptions(), max_prompt_tokens=384),
        sampling=SamplingConfig(max_new_tokens=192, context=640),
        values=ValuesConfig(k=3, context=640, max_step=25),
        update=UpdateConfig(minibatch=4, microbatch=4, max_sequence=640),
        dpo=DpoConfig(beta=0.3),
        restem=RestemConfig(rounds=2),
        sft=SftConfig(epochs=0, batch=16, microbatch=4, max_length=640),
        evaluation=EvaluationConfig(
            every=5, problems=16, samples=2, max_new_tokens=192, context=640
        ),
        checkpoint=CheckpointConfig(every=1, keep=2),
    )
    return with_algorithm(setup, algorithm)

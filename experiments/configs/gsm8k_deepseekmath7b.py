"""VinePPO with DeepSeekMath 7B on GSM8K: the paper's run.

Reproduces      GSM8K column of DeepSeekMath 7B in the paper (arXiv 2410.01679), VinePPO with K = 9.
Hardware        8 x H100-80GB in the paper. bfloat16 products, float32 master weights.
Expected        pass@1 on the 1,319 test problems 80.1 % from an SFT start of 69.6 % (PPO: 78.9 %),
                read off the figure of the authors' repository.
                The authors' run took its tokenizer from their MATH SFT checkpoint; here it is
                the model's own.
Command         python -m experiments.run --config=gsm8k_deepseekmath7b
                The SFT phase starts from the base model; the authors' SFT policy instead:
                --config.sft.path=realtreetune/deepseekmath-7b-sft-GSM8K
"""

from vinejax.config import (
    CheckpointConfig,
    Config,
    DpoConfig,
    EvaluationConfig,
    Gsm8kOptions,
    MeshConfig,
    PolicyConfig,
    SamplingConfig,
    SftConfig,
    TaskConfig,
    UpdateConfig,
    ValuesConfig,
    with_algorithm,
)


def config(algorithm: str = "vineppo") -> Config:
    """650 iterations of 64 problems x 8 trajectories, 16 updates each."""
    setup = Config(
        name="gsm8k_deepseekmath7b",
        iterations=650,
        prompts=64,
        samples=8,
        policy=PolicyConfig(
            path="deepseek-ai/deepseek-math-7b-base",
            revision="036a8c6189aac6e2fc4e07b46e1e57c6b647bca5",
        ),
        task=TaskConfig(name="gsm8k", options=Gsm8kOptions(), max_prompt_tokens=1512),
        sampling=SamplingConfig(temperature=0.6, top_p=0.9, max_new_tokens=1024, context=4095),
        values=ValuesConfig(k=9, context=2499, max_step=25),
        update=UpdateConfig(
            epochs=2,
            minibatch=64,
            microbatch=0,
            learning_rate=1e-6,
            warmup_ratio=0.03,
            clip=0.2,
            kl=1e-4,
            max_sequence=2499,
        ),
        dpo=DpoConfig(beta=0.3),
        sft=SftConfig(epochs=2, batch=64, microbatch=0, learning_rate=5e-5, max_length=2048),
        evaluation=EvaluationConfig(
            every=60,
            problems=373,
            test_problems=1319,
            samples=16,
            temperature=0.35,
            top_p=0.9,
            max_new_tokens=1024,
            context=2047,
        ),
        checkpoint=CheckpointConfig(every=30 if algorithm == "ppo" else 10, keep=2, keep_period=60),
        mesh=MeshConfig(fsdp=0, tensor=0),
    )
    return with_algorithm(setup, algorithm)

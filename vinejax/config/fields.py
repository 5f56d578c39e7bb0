"""The fields of a run: frozen records whose comments are also the help of the command line.

Defaults are the numbers of the VinePPO paper (arXiv 2410.01679) and its authors' code for RhoMath
1.1B on MATH; files in `experiments/configs` change what differs. Lengths are in tokens, batch sizes
in sequences, time in seconds.
"""

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal

ALGORITHMS = ("vineppo", "ppo", "grpo", "rloo", "restem", "dpo_positive", "sft")
TASKS = ("ledger", "gsm8k", "math")


@dataclass(frozen=True)
class Architecture:
    """A Llama decoder to be initialised at random; a model on disk brings its own."""

    hidden: int = 96  # Width of the residual stream.
    layers: int = 2  # Decoder blocks.
    heads: int = 4  # Query heads.
    kv_heads: int = 2  # Key/value heads; divides heads.
    head_dim: int = 24  # Size of one head; even, because rotary embeddings turn pairs.
    ffn: int = 256  # Inner width of the SwiGLU layer.
    tied: bool = False  # Output head shares the embedding matrix.
    rope_theta: float = 10000.0  # Base of the rotary frequencies (Llama 2).
    norm_eps: float = 1e-5  # Added to the mean square in RMSNorm (Llama 2).


@dataclass(frozen=True)
class PolicyConfig:
    """Where the policy's weights come from, and the precision it computes in."""

    path: str | None = None  # Hugging Face folder or hub id; None = random from architecture.
    revision: str | None = None  # Commit of the hub repository; None = its newest.
    tokenizer: str | None = None  # Folder or hub id; None = the task's own, else policy.path.
    architecture: Architecture | None = None  # Shape of a randomly initialised policy.
    # Matrix products: auto = bfloat16 on accelerators, float32 on CPU. Master weights are float32.
    compute_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    # What the backward pass recomputes instead of keeping it: none; dots = all of a block but its
    # weight products; block = all of it (the authors); auto = as little as fits the device.
    remat: Literal["auto", "none", "dots", "block"] = "auto"
    # In training and scoring: auto = cudnn on NVIDIA in bfloat16, splash on a TPU, else xla, which
    # is plain JAX.
    attention: Literal["auto", "xla", "cudnn", "splash"] = "auto"


@dataclass(frozen=True)
class LedgerOptions:
    """The embedded task: running arithmetic modulo 10, demonstrated with wrong facts."""

    seed: int = 1000  # Chooses the sloppy facts and generates all problems.
    length: int = 8  # Facts of a problem, one a reasoning step.
    sloppy: float = 0.4  # Share of the facts that demonstrations get wrong at times.
    wrong: float = 0.5  # Probability that a demonstration states a sloppy fact wrongly.
    operators: str = "+-*"  # Operators to draw from.
    # Probability that an operation, other than the last, is *0: a step before it makes no
    # difference to the reward, right or wrong. Below 1.
    resets: float = 0.0
    sft_size: int = 4000  # Problems with demonstrations, for SFT.
    train_size: int = 2000  # Problems for reinforcement learning.
    validation_size: int = 128  # Problems that choose the best iteration.
    test_size: int = 256  # Problems for the final table.


@dataclass(frozen=True)
class Gsm8kOptions:
    """GSM8K: 7,100 training, 373 validation and 1,319 test problems."""

    hub: str = "openai/gsm8k"  # Hub id, used when task.path is None.
    split_seed: int = 0  # Chooses the validation problems out of the published train part.
    # Commas in gold answers: authors keeps them (such problems can't be solved), clean drops them.
    gold_commas: Literal["authors", "clean"] = "authors"


@dataclass(frozen=True)
class MathOptions:
    """MATH in the split of the paper: 11,500 training, 500 validation and 500 test problems."""

    # Hub ids, used when task.path is None: all of MATH, and its 500 test problems. No default, as
    # MATH was taken down from the hub in 2025 and copies come and go.
    hub: str | None = None  # Such as EleutherAI/hendrycks_math (not verified).
    hub_test: str | None = None  # Such as HuggingFaceH4/MATH-500 (not verified).
    split_seed: int = 0  # Chooses the validation problems out of the 12,000 that are no test ones.
    final_newline: bool = True  # Demonstrations end with a newline (RhoMath yes, DeepSeekMath no).


TaskOptions = LedgerOptions | Gsm8kOptions | MathOptions
OPTIONS: dict[str, type[TaskOptions]] = {
    "ledger": LedgerOptions,
    "gsm8k": Gsm8kOptions,
    "math": MathOptions,
}


@dataclass(frozen=True)
class TaskConfig:
    """Which problems, and the rules that belong to them."""

    name: str = "math"  # ledger, gsm8k, math, or your own as module:Class.
    path: str | None = None  # Folder with the data files; None = the hub, or generated.
    options: TaskOptions | None = None  # What only this task has; None for your own task.
    steps: Literal["authors", "paper"] = "authors"  # Rule that cuts a solution into steps (math).
    max_prompt_tokens: int = 1512  # Longer training prompts are left out (authors).

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments for `tasks.get(name, **arguments)`: plain data that pickles."""
        chosen = {} if self.options is None else dataclasses.asdict(self.options)
        if self.path is not None:
            chosen["path"] = self.path
        if self.name == "math":
            chosen["steps"] = self.steps
        return chosen


@dataclass(frozen=True)
class SamplingConfig:
    """How trajectories are drawn; value rollouts use the same temperature, top-p and top-k."""

    temperature: float = 0.6  # Divides the logits, also in the loss; 0 = greedy (paper: 0.6).
    top_p: float = 0.9  # Nucleus mass; 1 = off (paper: 0.9).
    top_k: int = 0  # Keep the k most probable tokens; 0 = off.
    max_new_tokens: int = 1024  # Budget of a trajectory; of a rollout, see values.budget.
    context: int = 2047  # Prompt + response of a trajectory (2047 RhoMath, 4095 DeepSeekMath).
    truncation_reward: float = 0.0  # Of trajectories and rollouts that are cut off; -1 to 0.
    # End-of-sequence token behind a response that a stop string ended: none, or appended and
    # trained though it was never sampled (authors).
    append_eos: Literal["never", "trained"] = "never"
    # A sampled end-of-sequence token of a response that ended without its answer mark (gsm8k).
    unfinished_eos: Literal["dropped", "kept"] = "dropped"


@dataclass(frozen=True)
class ValuesConfig:
    """Monte Carlo values: which states, and how many rollouts from each."""

    k: int = 9  # Rollouts from every state (paper: 9; its ablation has 1, 3, 9).
    states: str = "step"  # Which states: step, token, or every:N (every N tokens).
    deduplicate: bool = True  # Equal prefixes share one estimate (authors: on).
    # A rollout has sampling.max_new_tokens from its state on (authors), or what is left of them
    # behind the tokens of the trajectory before the state.
    budget: Literal["state", "remaining"] = "state"
    context: int = 2047  # Prefix + rollout (2047 RhoMath, 2499 DeepSeekMath).
    max_step: int | None = None  # Later steps copy the return (gsm8k: 25); None = no cap.
    # Whatever passes through a state, token by token, counts there: rollouts from earlier states
    # and the problem's other trajectories, never the judged one's own return. Unbiased; not in the
    # paper. Needs values.budget=remaining and values.context = sampling.context.
    pool: bool = False
    # With pool: new rollouts only where fewer samples than this are known, and only what is
    # missing (k where nothing is known); 0 = k from every state. Unbiased.
    min_samples: int = 0
    # States to sample: all; skip:N (BIASED: none behind a state whose samples, N or more, all have
    # the trajectory's own return); bisect:N (BIASED: none between two states whose samples, N or
    # more, all have the same return). Expected error of a state left out: N^N / (N+1)^(N+1) at
    # most (N = 2: 0.15, 4: 0.08).
    plan: str = "all"


@dataclass(frozen=True)
class AdvantagesConfig:
    """From rewards or values to one number a token."""

    # Zero mean and unit variance over the minibatch's response tokens (paper: vineppo and ppo; it
    # does not say for grpo and rloo, whose configurations have it off).
    whiten: bool = True
    permute: bool = False  # Ablation of vineppo: shuffle the step advantages within each response.
    std: bool = True  # Of grpo: divide by the group's standard deviation; false = Dr. GRPO.


@dataclass(frozen=True)
class UpdateConfig:
    """PPO and its optimizer (paper, appendix C; authors' ppo_MATH.jsonnet)."""

    epochs: int = 2  # Passes over an iteration's trajectories.
    # Sequences (dpo_positive: pairs of them) in one optimizer step, over all devices.
    minibatch: int = 64
    # The same in one backward pass, over all devices; the sum is exact. 0 = as many as fit.
    microbatch: int = 64
    learning_rate: float = 1e-6  # Peak.
    warmup_ratio: float = 0.03  # Share of all optimizer steps.
    # Shape of the warm-up; DeepSpeed's WarmupDecayLR, which the authors use, is logarithmic.
    warmup: Literal["logarithmic", "linear"] = "logarithmic"
    decay: Literal["linear", "constant"] = "linear"  # After the warm-up; linear ends at 0.
    b1: float = 0.9  # AdamW, decay of the first moment.
    b2: float = 0.999  # AdamW, decay of the second moment.
    eps: float = 1e-8  # AdamW, added to the root of the second moment.
    weight_decay: float = 0.0  # AdamW, decoupled.
    max_grad_norm: float = 1.0  # Global norm that gradients are clipped to.
    clip: float = 0.2  # PPO clip range of the probability ratio.
    kl: float = 1e-4  # Coefficient of the KL (k3) to the SFT policy, summed over a sequence.
    kl_clamp: float = 10.0  # Upper bound of one token's KL, nats.
    ratio_guard: float = 10.0  # A minibatch whose mean ratio exceeds it makes no update.
    # Updates in a row whose loss or gradient is not finite, in SFT too, until the run stops; each
    # of them is skipped.
    max_skipped: int = 10
    # What the policy term's sum over tokens is divided by: the minibatch's response tokens, or its
    # sequences x sampling.max_new_tokens, whatever their lengths (constant = Dr. GRPO).
    divisor: Literal["tokens", "constant"] = "tokens"
    max_sequence: int = 2048  # Prompt + response, BOS and EOS included (DeepSeekMath: 2499).
    # Type that AdamW keeps its first moment in, the critic's too; bfloat16 saves 2 bytes a
    # parameter.
    first_moment: Literal["float32", "bfloat16"] = "float32"


@dataclass(frozen=True)
class CriticConfig:
    """The value network of ppo: its own copy of the SFT policy, its own optimizer.

    What is not here (warm-up, decay, AdamW, batch sizes) is as in update.
    """

    learning_rate: float | None = None  # Peak; None = update.learning_rate (authors).
    epochs: int | None = None  # Passes over an iteration's trajectories; None = update.epochs.
    clip: float = 0.2  # Range around its old value that a value's loss is clipped to.
    gamma: float = 1.0  # Discount a token (paper: 1).
    lam: float = 1.0  # GAE's lambda (paper: 1, the best of its sweep).


@dataclass(frozen=True)
class RestemConfig:
    """RestEM: rounds of sampling, keeping what is right, and training from the SFT policy."""

    rounds: int = 10  # Divides iterations; the policy changes at the end of each round (authors).
    keep: int = 10  # Correct responses kept of a problem in a round, at most (authors).
    evaluate_every: int = 500  # Updates between validations within a round (authors).
    # Stop at the first validation that does not improve (authors), or train to the end and keep
    # the best one.
    stopping: Literal["first", "best"] = "first"


@dataclass(frozen=True)
class DpoConfig:
    """DPO-Positive: one round of sampling, then training on pairs of right and wrong responses."""

    beta: float = 0.1  # Scale of the log-ratios in the loss (paper: 0.1 MATH, 0.3 GSM8K).
    penalty: float = 50.0  # Weight of a right response's loss of probability; 0 = DPO (authors).
    label_smoothing: float = 0.0  # Share of the pairs that are taken to be the wrong way round.
    pairs: int = 64  # Pairs of a problem, at most, drawn without replacement (authors).


@dataclass(frozen=True)
class SftConfig:
    """Supervised fine-tuning before reinforcement learning (paper, appendix C.3)."""

    path: str | None = None  # Folder or hub id of a policy after SFT; replaces the SFT phase.
    epochs: float = 2.0  # Passes over the demonstrations; 0 = no SFT; a fraction is allowed.
    learning_rate: float = 1e-5  # Peak (1e-5 RhoMath, 5e-5 DeepSeekMath).
    # Peaks to compare on validation instead, each trained from the same start; none = one run with
    # learning_rate (the paper tries several for each model).
    learning_rates: tuple[float, ...] = ()
    # Which checkpoint: the last (authors' configurations), or that end of an epoch which is best on
    # validation (paper, with 3 epochs).
    select: Literal["last", "validation"] = "last"
    batch: int = 64  # Sequences in one optimizer step.
    microbatch: int = 64  # Sequences in one backward pass; 0 = as many as fit.
    warmup_ratio: float = 0.03  # Share of all SFT steps, linear.
    decay: Literal["linear", "cosine"] = "linear"  # Linear ends at 0, cosine at a tenth.
    b1: float = 0.9  # AdamW, decay of the first moment.
    b2: float = 0.999  # AdamW, decay of the second moment.
    eps: float = 1e-8  # AdamW, added to the root of the second moment.
    weight_decay: float = 0.0  # AdamW, decoupled.
    max_grad_norm: float = 1.0  # Global norm that gradients are clipped to.
    max_length: int = 2048  # Prompt + solution; longer demonstrations are left out.


@dataclass(frozen=True)
class EvaluationConfig:
    """Sampled accuracy: on validation while training, on test at the end."""

    # Iterations between validations; 0 = only after SFT and at the end. (restem and dpo_positive:
    # at the end of every round.)
    every: int = 40
    problems: int = 500  # Validation problems, at most.
    test_problems: int | None = None  # Test problems, at most; None = as many as problems.
    samples: int = 16  # Responses to each problem (paper: 16).
    temperature: float = 0.35  # The paper's evaluation temperature.
    top_p: float = 0.9  # Nucleus mass.
    max_new_tokens: int = 1024  # Budget of a response.
    context: int = 2047  # Prompt + response (4095 for DeepSeekMath on MATH).
    # Responses that the budget ended: graded on their text (authors), or wrong.
    truncated: Literal["graded", "wrong"] = "graded"


@dataclass(frozen=True)
class CheckpointConfig:
    """What is kept on disk to resume from."""

    every: int = 10  # Iterations between checkpoints (authors: 10).
    keep: int = 2  # Newest checkpoints kept for resuming.
    keep_period: int = 0  # Also keep every N-th iteration's; 0 = none (authors: 40 or 60).
    keep_rollouts: int = 0  # Newest iterations whose file in rollouts/ is kept; 0 = all.


@dataclass(frozen=True)
class GradingConfig:
    """Rewards: worker processes that read answers."""

    grader: Literal["authors", "strict"] = "authors"  # The reward; the other one is only reported.
    limit: float = 15.0  # CPU seconds for one answer; beyond it the grade is 0.
    workers: int = 0  # Processes; 0 = one a core, at most 16.


@dataclass(frozen=True)
class MeshConfig:
    """Devices along each mesh axis."""

    data: int = -1  # Copies of the model; -1 = all devices that the other axes leave.
    # Shards of parameters and optimizer state; 0 = as few as leave half of a device free.
    fsdp: int = 1
    # Shards of heads and vocabulary; divides the key/value heads; 0 = as few as leave room for KV.
    tensor: int = 1


@dataclass(frozen=True)
class EngineConfig:
    """Sizes of the sampling engine; 0 = chosen from device memory. They do not change samples."""

    rows: int = 0  # Rows of the decode batch; their slots share the KV of `trunks` trunks.
    # Trunks in a row; 0 = 2: the next one's vines start while the last one's end. 1: every slot
    # looks at half as many cells, and slots idle until all vines of the row have ended.
    trunks: int = 0
    slots: int = 0  # Continuations that a row decodes at once.
    ring: int = 0  # Tokens of a continuation's own KV; a longer one is re-rooted.
    wave: int = 0  # Trunks whose KV is held at once; 0 = 512.
    chunk: int = 0  # Decode steps between two looks of the host; 0 = 256.
    # Attention of a decoding step. cudnn: NVIDIA in bfloat16, moves a third fewer bytes. auto:
    # cudnn where it runs and agrees with xla on the run's own device, else xla.
    attention: Literal["auto", "xla", "cudnn"] = "auto"


@dataclass(frozen=True)
class Config:
    """One run. `experiments.configs` has named ones; `validate` before use."""

    name: str = "custom"  # Part of the default output folder.
    # The method: vineppo, ppo, grpo, rloo, restem, dpo_positive, sft (stops after supervised
    # fine-tuning), or your own as module:Class.
    algorithm: str = "vineppo"
    seed: int = 0  # All randomness of the run derives from it (the task's data has its own seed).
    iterations: int = 1000  # Rounds of sampling and updating (1000 MATH, 650 GSM8K).
    prompts: int = 64  # Problems in an iteration.
    samples: int = 8  # Trajectories from each of them.
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    values: ValuesConfig = field(default_factory=ValuesConfig)
    advantages: AdvantagesConfig = field(default_factory=AdvantagesConfig)
    update: UpdateConfig = field(default_factory=UpdateConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)
    restem: RestemConfig = field(default_factory=RestemConfig)
    dpo: DpoConfig = field(default_factory=DpoConfig)
    sft: SftConfig = field(default_factory=SftConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    grading: GradingConfig = field(default_factory=GradingConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)

    def validate(
        self, tasks: Collection[str] = TASKS, algorithms: Collection[str] = ALGORITHMS
    ) -> "Config":
        """Return self if a run could start from it; ConfigError names field, value and remedy.

        `tasks` and `algorithms` are the names that exist; module:Class needs no registration.
        """
        from vinejax.config.rules import validate  # it imports this module

        validate(self, tasks, algorithms)
        return self

    @property
    def episodes(self) -> int:
        """Trajectories in one iteration."""
        return self.prompts * self.samples

    @property
    def updates(self) -> int:
        """Optimizer steps of reinforcement learning in the whole run."""
        return self.iterations * self.update.epochs * (self.episodes // self.update.minibatch)

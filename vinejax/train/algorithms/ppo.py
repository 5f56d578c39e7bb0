"""PPO (Schulman et al., arXiv 1707.06347): a second network, the critic, predicts the values."""

from collections.abc import Iterator

import jax
import numpy as np

from vinejax import advantages, policy, rng, sharding, update
from vinejax.config import Config
from vinejax.train import learning
from vinejax.train.algorithms.base import Context, Metrics, PolicyGradient
from vinejax.train.clock import Clock
from vinejax.train.credit import Credit
from vinejax.train.setup import Setup
from vinejax.train.skipped import Skips
from vinejax.train.trajectories import Trajectories

_gae = jax.jit(advantages.gae)


class PPO(PolicyGradient):
    """A token's advantage is GAE over the critic's values; the reward stands on the last token.

    `state` is the critic's: a copy of the start policy's backbone, a value head, an optimizer.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        setup = context.setup
        settings = hyper(setup.config, setup.model)
        mesh = None if setup.mesh.size == 1 else setup.mesh
        self.state = first_critic(setup, context.start())
        self._update = update.make_critic_step(settings, mesh)
        self._values = update.make_values(settings, mesh)
        own = setup.config.critic.learning_rate is not None
        rate = "critic.learning_rate" if own else "update.learning_rate"
        self._skips = Skips(setup.config, context.out, rate)

    def assign(
        self, iteration: int, batch: Trajectories, weights: policy.DecodeWeights, clock: Clock
    ) -> Credit:
        with clock("scoring"):
            old = self.score(weights, batch)
        rows = learning.sequences_of(batch)
        with clock("values"):
            values = self._values_of(rows)
            token_advantages = advantages_of(self.context.setup.config, rows, values, batch.reward)
        token_values = _of_responses(rows, values)
        starts = [states.starts for states in batch.states]
        return Credit(
            [a[at] for a, at in zip(token_advantages, starts, strict=True)],
            token_advantages,
            old,
            [v[at] for v, at in zip(token_values, starts, strict=True)],
            token_values,
        )

    def after_update(
        self, iteration: int, batch: Trajectories, credit: Credit, clock: Clock
    ) -> Metrics:
        """The critic's own epochs: to the returns, which are raw advantage plus old value."""
        config, values = self.context.setup.config, credit.token_values
        assert values is not None, "assign gives them"
        returns = [a + v for a, v in zip(credit.token_advantages, values, strict=True)]
        rows = learning.sequences_of(batch) | {
            "returns": learning.over_responses(batch, returns),
            "old_values": learning.over_responses(batch, values),
        }
        mesh, results = self.context.setup.mesh, []

        def make() -> Iterator[dict[str, np.ndarray]]:
            for part in learning.minibatches(config, iteration, passes(config), rows, mesh):
                del part["at"]  # values are asked for at every token
                yield part

        with clock("critic"):
            for part in make():
                placed = sharding.place(part, self._update.batch_sharding)
                self.state, metrics = self._update.step(self.state, update.CriticBatch(**placed))
                results.append(metrics)
            results = jax.device_get(results)
            self._skips.look(results, make())
            learned = learning.combine(results)
        value, target = np.concatenate(values), np.concatenate(returns)
        return {
            "value": float(value.mean()) if len(value) else 0.0,
            "value_loss": learned["loss"],
            "value_clip_fraction": learned["clip_fraction"],
            "value_explained_variance": explained_variance(value, target),
            "critic_grad_norm": learned["grad_norm"],
            "skipped": learned["skipped"],  # of the critic's updates; the policy's are added
            "critic_learning_rate": learned["learning_rate"],
            "tokens_scored_critic": int(rows["length"].sum()),
            "tokens_trained_critic": int(learned["tokens"]),
        }

    def _values_of(self, rows: dict[str, np.ndarray]) -> np.ndarray:
        """The critic's values of all tokens, a micro-batch at a time."""
        size, placement = self.context.setup.config.update.microbatch, self._update.batch_sharding
        found = []
        for start in range(0, len(rows["length"]), size):
            part = [rows[name][start : start + size] for name in ("tokens", "length")]
            found.append(self._values(self.state.params, *sharding.place(part, placement)))
        return np.concatenate(jax.device_get(found))


def first_critic(setup: Setup, start: policy.Params) -> update.State:
    """The critic before any update, on a copy of the backbone of `start`."""
    settings = hyper(setup.config, setup.model)
    mesh = None if setup.mesh.size == 1 else setup.mesh
    key = rng.fold_name(rng.key(setup.config.seed), "critic")
    return update.init_critic(start, settings, key, mesh)


def hyper(config: Config, model: policy.LlamaConfig) -> update.CriticHyper:
    """The static settings of the critic's update."""
    critic = config.critic
    rate = config.update.learning_rate if critic.learning_rate is None else critic.learning_rate
    total = config.updates // config.update.epochs * passes(config)
    optimizer = learning.optimizer(config, rate, total)
    return update.CriticHyper(model, optimizer, config.update.microbatch, critic.clip)


def passes(config: Config) -> int:
    """The critic's epochs in an iteration."""
    return config.critic.epochs or config.update.epochs


def advantages_of(
    config: Config, rows: dict[str, np.ndarray], values: np.ndarray, reward: np.ndarray
) -> list[np.ndarray]:
    """GAE of each response's tokens, fp32 [T] each, by the values [M, T] of all tokens.

    `rows` are those of `learning.sequences_of`. The reward stands on the last token.
    """
    rewards = np.zeros_like(values)
    rewards[np.arange(len(rewards)), rows["length"] - 1] = reward
    critic = config.critic
    found = _gae(rewards, values, critic.gamma, critic.lam, rows["is_response"])
    return _of_responses(rows, np.asarray(found))


def _of_responses(rows: dict[str, np.ndarray], column: np.ndarray) -> list[np.ndarray]:
    """What a column [M, T] has at each response's tokens."""
    return [row[kept] for row, kept in zip(column, rows["is_response"], strict=True)]


def explained_variance(values: np.ndarray, returns: np.ndarray) -> float:
    """1 - Var(returns - values) / Var(returns): 1 is perfect, 0 as good as a constant.

    0 where the returns do not vary: there is nothing to explain.
    """
    spread = np.var(returns, dtype=np.float64) if len(returns) else 0.0
    return 1 - float(np.var(returns - values, dtype=np.float64) / spread) if spread else 0.0

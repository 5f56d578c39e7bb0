"""The vines of one wave of trajectories: where they grow, and what the states are worth.

With the defaults every distinct state gets K rollouts at once. `values.pool`, `values.min_samples`
and `values.plan` change what counts at a state and which states are sampled, in rounds.
"""

from dataclasses import dataclass
from functools import cached_property

import jax
import numpy as np

from vinejax import policy, rng, sampler, vine
from vinejax.config import values_plan
from vinejax.grading import GraderPool, Grading
from vinejax.train.setup import Setup
from vinejax.train.trajectories import Trajectories, is_cut_off, response_text, with_texts

# Of the rollouts whose texts are written out: of each, and of all from one trajectory.
CHARACTERS, CHARACTERS_IN_ALL = 2_000, 200_000
_SAME = 1e-6  # a standard error below it is rounding: all returns are equal


@dataclass(frozen=True)
class Grown:
    """The rollouts of one round, being graded. Arrays are [J]."""

    node: np.ndarray  # int, where they were launched
    number: np.ndarray  # int, numbers the rollouts of a node
    truncated: np.ndarray  # bool
    grading: Grading
    texts: dict[int, str]  # by index: of those that are to be written out

    @cached_property
    def grades(self) -> np.ndarray:
        """fp64; waits for them."""
        return np.array([verdict.grade for verdict in self.grading.result()], np.float64)


@dataclass(frozen=True)
class Continuation:
    """One rollout from a state."""

    reward: float
    text: str | None  # what follows the state; None where no more are kept


@dataclass(frozen=True)
class Measured:
    """What the states of a wave are worth."""

    nodes: vine.Values  # of the distinct states that have a value, as their first trajectory has it
    rollouts: np.ndarray  # int [P], launched at each of these states
    left_out: int  # distinct states without a value of their own
    values: list[np.ndarray]  # fp32 [states], of each trajectory
    # What was launched at each state, of the few trajectories (their numbers) that are shown.
    continuations: dict[int, list[list[Continuation]]]


class Vines:
    """Grows the vines of the trajectories `members`, and reads their values once graded."""

    def __init__(
        self,
        setup: Setup,
        weights: policy.DecodeWeights,
        graders: GraderPool,
        iteration: int,
        batch: Trajectories,
        members: range,
    ):
        self.members = members
        self._setup, self._weights, self._graders = setup, weights, graders
        self._iteration, self._batch = iteration, batch
        self._tokens = batch.tokens[members.start : members.stop]
        self._prompt = np.array([len(batch.prompts[m]) for m in members])
        rules, problems = setup.config.values, [batch.problems[m].id for m in members]
        self.nodes = vine.nodes_of(
            self._tokens,
            self._prompt.tolist(),
            [batch.states[m] for m in members],
            problems,
            deduplicate=rules.deduplicate,
            max_step=rules.max_step,
        )
        states = len(self.nodes.trajectory)
        self._shown = [m for m in with_texts(batch.problems) if m in members]
        self._shown_states = {
            int(p) for m in self._shown for p in self.nodes.of_state[m - members.start]
        }
        self._known = np.zeros(states, bool)
        self._grown: list[Grown] = []
        # Every pair of a trajectory and one of its states, trajectory by trajectory.
        self._state = np.concatenate([np.zeros(0, np.int32), *self.nodes.of_state])
        lengths = [len(of_state) for of_state in self.nodes.of_state]
        self._judged = np.repeat(np.arange(len(members)), lengths)
        self._splits = np.cumsum(lengths)[:-1]
        self._tree, self._pool = None, None
        if rules.pool:
            self._tree = vine.PrefixTree(self.nodes, self._tokens, problems)
            self._pool = vine.Pool(states)
            for m, problem in zip(members, problems, strict=True):
                whole = np.concatenate([batch.prompts[m], batch.responses[m].drawn])
                self._pool.add(self._tree.of_problem(problem, whole))

    def grow(self, cache: policy.Cache | None) -> sampler.Counters:
        """Samples round after round until no state is wanted any more, and has all graded.

        `cache` holds the trajectories' KV. Where later rounds depend on rewards, they wait for
        them.
        """
        counters, round_ = sampler.Counters(), self._wanted()
        while len(round_):
            counters += self._sample(round_, cache)
            self._known[round_] = True
            round_ = self._wanted()
        return counters

    def measured(self) -> Measured:
        """All values; waits for the grades."""
        known = np.flatnonzero(self._known)
        rollouts = np.bincount(
            np.concatenate([np.zeros(0, np.int64), *(g.node for g in self._grown)]),
            minlength=len(self._known),
        )
        mean = np.split(self._values(self._state, self._judged).mean, self._splits)
        return Measured(
            self._values(known, self.nodes.trajectory[known]),
            rollouts[known],
            len(self._known) - len(known),
            [
                vine.carried(own, self._known[of_state])
                for own, of_state in zip(mean, self.nodes.of_state, strict=True)
            ],
            {m: self._continuations(m) for m in self._shown},
        )

    def _continuations(self, m: int) -> list[list[Continuation]]:
        """What was launched at each state of trajectory m, its texts up to a bound."""
        worst, room, found = self._setup.config.sampling.truncation_reward, CHARACTERS_IN_ALL, []
        for node in self.nodes.of_state[m - self.members.start]:
            found.append(own := [])
            for grown in self._grown:
                for j in np.flatnonzero(grown.node == node).tolist():
                    text = grown.texts[j][:CHARACTERS]
                    room -= len(text)
                    reward = worst if grown.truncated[j] else float(grown.grades[j])
                    own.append(Continuation(reward, text if room >= 0 else None))
        return found

    def _wanted(self) -> np.ndarray:
        """The states of the next round, in order."""
        rules = self._setup.config.values
        kind, enough = values_plan(rules.plan)
        if kind == "all" and not rules.min_samples:
            return np.flatnonzero(~self._known)
        settled = np.full(len(self._state), np.nan)
        if kind != "all":
            found = self._values(self._state, self._judged)
            settled = np.where((found.count >= enough) & (found.stderr < _SAME), found.mean, np.nan)
        wanted = np.zeros(len(self._known), bool)
        rewards = self._batch.reward[self.members.start : self.members.stop]
        columns = zip(self.nodes.of_state, np.split(settled, self._splits), rewards, strict=True)
        for of_state, own, reward in columns:
            following = vine.next_states(kind, self._known[of_state], own, float(reward))
            wanted[of_state[following]] = True
        return np.flatnonzero(wanted)

    def _new(self, states: np.ndarray) -> np.ndarray:
        """How many rollouts each state gets: K, or what `values.min_samples` finds missing."""
        rules = self._setup.config.values
        if self._pool is None or not rules.min_samples:
            return np.full(len(states), rules.k)
        others = self._pool.count[states] - 1  # without the trajectory that is judged
        return np.where(others == 0, rules.k, np.maximum(rules.min_samples - others, 0))

    def _jobs(self, states: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, sampler.Jobs]:
        """The node of each new rollout, and the rollouts as jobs of the sampler."""
        config, nodes = self._setup.config, self.nodes
        most = np.full(len(nodes.trajectory), config.sampling.max_new_tokens)
        if config.values.budget == "remaining":
            most -= nodes.prefix_length - self._prompt[nodes.trajectory]
        if config.values.pool:  # a pooled trajectory had to be short enough to be trained on
            most = np.minimum(most, config.update.max_sequence - nodes.prefix_length)
        node = np.repeat(states, new)
        number = np.concatenate([np.zeros(0, np.int64), *(np.arange(n) for n in new)])
        prefix = nodes.prefix_length[node]
        budget = self._setup.budget(prefix, most[node], config.values.context)
        return node, sampler.Jobs.of(
            nodes.trajectory[node], prefix, number, budget, nodes.copy[node]
        )

    def _sample(self, states: np.ndarray, cache: policy.Cache | None) -> sampler.Counters:
        """Samples a round of continuations, and has them graded."""
        setup, config, batch = self._setup, self._setup.config, self._batch
        node, jobs = self._jobs(states, self._new(states))
        if not len(jobs):
            return sampler.Counters()
        samples = sampler.sample(
            self._weights,
            setup.model,
            sampler.Trunks.of(self._tokens, self._prompt),
            jobs,
            setup.settings(
                config.sampling.temperature, config.sampling.top_p, config.sampling.top_k
            ),
            self._key,
            layout=setup.layout(setup.wave, 16, config.sampling.max_new_tokens),
            cache=cache,
        )
        texts, cut, shown = [], [], {}
        for j, finish in enumerate(samples.finish.tolist()):
            m = self.members[0] + int(jobs.trunk[j])
            begun = self._tokens[jobs.trunk[j]][len(batch.prompts[m]) : jobs.prefix_length[j]]
            new = samples.tokens[j, : samples.length[j]]
            text, _ = response_text(setup, np.concatenate([begun, new]), finish)
            texts.append((batch.problems[m], text))
            cut.append(is_cut_off(setup, finish, text))
            if int(node[j]) in self._shown_states:
                shown[j] = text[len(setup.tokenizer.decode(begun.tolist())) :]
            if self._tree is not None and self._pool is not None:
                self._pool.add(self._tree.after(int(node[j]), new))
        strict = config.grading.grader == "strict"
        grading = self._graders.submit(texts, self._iteration, "values", strict=strict)
        self._grown.append(Grown(node, jobs.sample, np.array(cut, bool), grading, shown))
        return samples.counters

    @property
    def _key(self) -> jax.Array:
        return rng.phase_key(self._setup.config.seed, self._iteration, "values")

    def _values(self, states: np.ndarray, judged: np.ndarray) -> vine.Values:
        """The value of each of `states` for the trajectory in `judged`; waits for the grades."""
        worst = self._setup.config.sampling.truncation_reward
        if self._pool is None:
            return vine.Values(*(column[states] for column in self._of_nodes(worst)))
        part = slice(self.members.start, self.members.stop)
        returns, truncated = [self._batch.reward[part]], [self._batch.truncated[part]]
        for grown in self._grown:
            grades = np.where(grown.truncated, worst, grown.grades)
            returns.append(grades.astype(np.float32))
            truncated.append(grown.truncated)
        return self._pool.values(
            np.concatenate(returns), np.concatenate(truncated), states, judged, worst
        )

    def _of_nodes(self, worst: float) -> vine.Values:
        """The values of all states from their own rollouts."""
        shape = len(self._known), self._setup.config.values.k
        rewards, truncated = np.zeros(shape, np.float32), np.zeros(shape, bool)
        where = np.zeros(shape, bool)
        for grown in self._grown:
            place = grown.node, grown.number
            rewards[place] = grown.grades
            truncated[place], where[place] = grown.truncated, True
        return vine.values(rewards, truncated, where, worst)

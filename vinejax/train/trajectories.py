"""The first half of an iteration: prompts are drawn, answered, graded, and cut into steps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vinejax import policy, processes, rng, sampler, stop
from vinejax.arrays import Finish
from vinejax.config import every_n_tokens
from vinejax.grading import GraderPool, Grading
from vinejax.tasks import Problem
from vinejax.train.clock import Clock
from vinejax.train.setup import Prompted, Setup
from vinejax.vine import Steps, states_every, steps_of_tokens

TEXTS_KEPT = 8  # trajectories of an iteration whose texts are written out


@dataclass(frozen=True)
class Response:
    """One sampled response: its tokens, and the text that is a view of them."""

    tokens: np.ndarray  # int32 [T]; a sampled end-of-sequence token included, a stop string not
    text: str
    finish: int
    # fp32 [T], as sampled; an end-of-sequence token that was appended has none, it was not sampled
    logprob: np.ndarray
    logprob_full: np.ndarray  # the same under the temperature alone
    drawn: np.ndarray  # int32, all that was sampled: a stop string included, nothing appended


@dataclass(frozen=True)
class Trajectories:
    """The graded responses of an iteration, all samples of a prompt in a row."""

    problems: Sequence[Problem]
    prompts: Sequence[np.ndarray]  # tokens
    responses: Sequence[Response]
    steps: Sequence[Steps]  # the task's reasoning steps
    states: Sequence[Steps]  # the pieces that get a value: the steps, or so many tokens each
    reward: np.ndarray  # fp32 [M], `sampling.truncation_reward` where truncated
    # bool [M], ended by its budget, by an error, or without an answer where the task wants one
    truncated: np.ndarray
    answered: np.ndarray  # bool [M], an answer can be read from it
    step_failures: int  # responses that are one step because the task's rule does not fit them
    policy_step: int  # updates that the policy had seen
    counters: sampler.Counters

    @property
    def tokens(self) -> list[np.ndarray]:
        """Prompt and response, joined, of each trajectory."""
        return [
            np.concatenate([p, r.tokens]) for p, r in zip(self.prompts, self.responses, strict=True)
        ]


# As integers: to read a member of an enumeration takes longer than to compare with it.
_STOP, _CUT_OFF = int(Finish.STOP), (int(Finish.LENGTH), int(Finish.ERROR))


def with_texts(problems: Sequence[Problem], count: int = TEXTS_KEPT) -> list[int]:
    """Which trajectories have their texts written out, by the problem of each trajectory.

    A first sample of as many problems as there are, then second ones, and so on.
    """
    seen: dict[str, int] = {}
    numbered = []
    for m, problem in enumerate(problems):
        seen[problem.id] = seen.get(problem.id, 0) + 1
        numbered.append((seen[problem.id], m))
    return sorted(m for _, m in sorted(numbered)[:count])


def choose_prompts(setup: Setup, iteration: int) -> list[Prompted]:
    """The iteration's prompts, none of them twice: the first of a shuffle by seed + iteration."""
    order = np.random.default_rng(setup.config.seed + iteration).permutation(len(setup.train))
    return [setup.train[i] for i in order[: setup.config.prompts]]


def response_text(setup: Setup, tokens: np.ndarray, finish: int) -> tuple[str, int]:
    """The text of a response's tokens, and how many of them it takes.

    At a stop string both end at the same place: the tokens that begin before it stay.
    """
    ids = tokens.tolist()
    text = setup.tokenizer.decode(ids)
    if finish != _STOP:
        return text, len(ids)
    at = stop.find(text, setup.task.stop)
    return text[:at], int((np.array(setup.tokenizer.char_starts(ids)) < at).sum())


def read_response(setup: Setup, samples: sampler.Samples, j: int) -> Response:
    """Sample j, continuing a whole prompt, as a response."""
    finish = int(samples.finish[j])
    drawn = samples.tokens[j, : samples.length[j]]
    text, length = response_text(setup, drawn, finish)
    logprob, logprob_full = (a[j, :length] for a in (samples.logprob, samples.logprob_full))
    return Response(drawn[:length], text, finish, logprob, logprob_full, drawn)


def is_cut_off(setup: Setup, finish: int, text: str) -> bool:
    """Whether a response counts as unfinished, and so is not graded."""
    return finish in _CUT_OFF or not setup.task.finished(text)


def with_end(setup: Setup, response: Response, cut: bool, prompt_length: int) -> Response:
    """The response with or without an end-of-sequence token, as it is to be trained."""
    rules = setup.config.sampling
    if response.finish == Finish.EOS and cut and rules.unfinished_eos == "dropped":
        return replace(
            response,
            tokens=response.tokens[:-1],
            logprob=response.logprob[:-1],
            logprob_full=response.logprob_full[:-1],
        )
    fits = prompt_length + len(response.tokens) < setup.config.update.max_sequence
    if response.finish == Finish.STOP and not cut and fits and rules.append_eos == "trained":
        return replace(
            response, tokens=np.append(response.tokens, np.int32(setup.tokenizer.eos_id))
        )
    return response


def collect(
    setup: Setup,
    weights: policy.DecodeWeights,
    graders: GraderPool,
    iteration: int,
    policy_step: int,
    clock: Clock,
) -> Trajectories:
    """Samples, grades and cuts the trajectories of one iteration."""
    config = setup.config
    prompted = choose_prompts(setup, iteration)
    trunks = sampler.Trunks.of([p.tokens for p in prompted])
    room = np.minimum(
        setup.budget(trunks.length, config.sampling.max_new_tokens, config.sampling.context),
        config.update.max_sequence - trunks.length,  # a longer response could not be trained on
    )
    jobs = sampler.Jobs.at_ends(trunks, config.samples, room)
    with clock("trajectories"):
        samples = _sample(setup, weights, iteration, trunks, jobs)
    with clock("grading"):
        responses = [read_response(setup, samples, j) for j in range(len(jobs))]
        to = [prompted[t] for t in jobs.trunk]
        return graded(setup, graders, to, responses, iteration, policy_step, samples.counters)


def graded(
    setup: Setup,
    graders: GraderPool,
    prompted: Sequence[Prompted],
    responses: Sequence[Response],
    iteration: int,
    policy_step: int,
    counters: sampler.Counters,
) -> Trajectories:
    """Grades responses and cuts them into steps; `prompted` has the problem of each."""
    config = setup.config
    problems = [p.problem for p in prompted]
    here = setup.shards.here(config.prompts)
    own = slice(here.start * config.samples, here.stop * config.samples)
    grading = graders.submit(
        [(p, r.text) for p, r in zip(problems[own], responses[own], strict=True)],
        iteration,
        "trajectories",
        strict=config.grading.grader == "strict",
    )
    answered = [setup.task.extract_answer(r.text) is not None for r in responses]
    cut = np.array([is_cut_off(setup, r.finish, r.text) for r in responses])
    columns = zip(prompted, responses, cut, strict=True)
    responses = [with_end(setup, r, c, len(p.tokens)) for p, r, c in columns]
    failures = setup.task.step_failures
    steps = [_steps(setup, r) for r in responses]
    grades = grades_of([grading])[0].astype(np.float32)
    spacing = every_n_tokens(config.values.states)
    return Trajectories(
        problems=problems,
        prompts=[p.tokens for p in prompted],
        responses=responses,
        steps=steps,
        states=[states_every(s, spacing) for s in steps],
        reward=np.where(cut, np.float32(config.sampling.truncation_reward), grades),
        truncated=cut,
        answered=np.array(answered),
        step_failures=setup.task.step_failures - failures,
        policy_step=policy_step,
        counters=counters,
    )


def _sample(
    setup: Setup,
    weights: policy.DecodeWeights,
    iteration: int,
    trunks: sampler.Trunks,
    jobs: sampler.Jobs,
) -> sampler.Samples:
    config, rules = setup.config, setup.config.sampling
    most = setup.shards.most(config.prompts)
    return setup.shards.sample(
        weights,
        setup.model,
        trunks,
        jobs,
        setup.settings(rules.temperature, rules.top_p, rules.top_k),
        rng.phase_key(config.seed, iteration, "trajectories"),
        layout=setup.layout(most, config.samples, rules.max_new_tokens),
        wave=config.engine.wave or config.prompts,
    )


def grades_of(gradings: Sequence[Grading]) -> list[np.ndarray]:
    """The grades, fp64, of each of some gradings, in which every process has items of its own."""
    own = {str(i): [v.grade for v in grading.result()] for i, grading in enumerate(gradings)}
    joined = processes.join({name: np.array(grades, np.float64) for name, grades in own.items()})
    return list(joined.values())


def _steps(setup: Setup, response: Response) -> Steps:
    boundaries = setup.task.split_steps(response.text)
    return steps_of_tokens(boundaries, setup.tokenizer.char_starts(response.tokens.tolist()))

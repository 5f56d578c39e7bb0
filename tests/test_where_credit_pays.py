"""The study of chain lengths: what its settings hold fixed, and what it refuses."""

from dataclasses import replace

import pytest

from benchmarks import where_credit_pays as study
from experiments.configs import ledger_long, ledger_sloppy, tiny
from vinejax.config import Config, LedgerOptions
from vinejax.tasks import get


def options(config: Config) -> LedgerOptions:
    assert isinstance(config.task.options, LedgerOptions)
    return config.task.options


def test_eight_facts_are_the_embedded_default():
    assert study.of_length(tiny.config(), 8) == tiny.config()


def test_a_share_of_sloppy_facts_that_is_given_holds_for_every_length():
    for length in (6, 12):
        assert options(study.of_length(tiny.config(), length, sloppy=0.7)).sloppy == 0.7


def test_the_embedded_long_chains_are_those_of_the_study():
    studied = study.of_length(tiny.config(), 12)
    longer = replace(studied, name="ledger_long", sft=replace(studied.sft, epochs=12))
    assert ledger_long.config() == longer


def test_the_embedded_poorer_start_is_that_of_the_study():
    studied = study.of_length(tiny.config(), 8, sloppy=0.6)
    assert ledger_sloppy.config() == replace(studied, name="ledger_sloppy")


@pytest.mark.parametrize("length", [6, 8, 12, 16, 24])
def test_demonstrations_of_all_lengths_are_right_equally_often_and_fit(length: int):
    config = study.of_length(tiny.config(), length)
    one = 1 - options(config).sloppy * options(config).wrong
    assert one**length == pytest.approx(0.8**8, rel=2e-3)
    task = get("ledger", **config.task.arguments())
    tokenizer = task.tokenizer()
    assert tokenizer is not None
    problems = task.load("sft")[:50]
    prompts = [len(tokenizer.encode(task.prompt(p), bos=True)) for p in problems]
    responses = [len(tokenizer.encode(task.target(p))) + 1 for p in problems]  # and its end
    assert max(prompts) <= config.task.max_prompt_tokens
    assert max(responses) + 5 <= config.sampling.max_new_tokens
    longest = config.task.max_prompt_tokens + config.sampling.max_new_tokens
    contexts = (config.sampling, config.evaluation, config.values)
    assert {part.context for part in contexts} == {config.update.max_sequence}
    assert longest <= config.update.max_sequence == config.sft.max_length


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--out is missing"),
        (["--out=x", "--arms", "K = 4"], "--arms has 'K = 4'"),
        (["--out=x", "--config.algorithm=grpo"], "--config.algorithm"),
        (["--out=x", "--seeds=0"], "--seeds is 0"),
    ],
)
def test_bad_flags_are_refused(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    assert study.main(["--config=tiny", *flags]) != 0
    assert message in capsys.readouterr().err


def test_every_arm_can_be_configured():
    methods = {words[0] for words in study.ARMS.values()}
    assert methods == {"algorithm=grpo", "algorithm=ppo", "algorithm=vineppo"}
    assert len({study._folder(arm) for arm in study.ARMS}) == len(study.ARMS)

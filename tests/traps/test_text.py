"""Traps of tokens and text: ids are the truth, whatever their text would be encoded to."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tests.small_tokenizers import SMALL, byte_level
from tests.train.enumerable import CONFIG, setup_of
from vinejax import sampler, tasks
from vinejax.arrays import Finish
from vinejax.tasks import Problem
from vinejax.train import learning, setup, supervised
from vinejax.train.trajectories import _steps, read_response, with_end

STOP = "\n\n\nProblem:"


def gsm8k_setup(tokenizer):
    return replace(setup_of(), tokenizer=tokenizer, task=tasks.get("gsm8k", path="unused"))


def samples_of(ids, finish):
    """One finished sample, padded; its log-probabilities count the tokens."""
    tokens = np.array([[*ids, 0, 0]], np.int32)
    logprob = np.arange(tokens.size, dtype=np.float32)[None]
    length, end = np.array([len(ids)]), np.array([int(finish)])
    return sampler.Samples(tokens, -logprob, -2 * logprob, length, end, sampler.Counters())


def test_trained_ids_are_the_sampled_ids_where_the_text_encodes_otherwise():
    tokenizer = byte_level()
    text = "\nTom has 3 red pens.\n#### 3"
    ids = [tokenizer.bytes_of_ids.index(bytes([b])) for b in text.encode()]
    assert tokenizer.encode(text) != ids  # a policy may spell what its tokenizer would merge
    prepared = gsm8k_setup(tokenizer)
    response = read_response(prepared, samples_of([*ids, tokenizer.eos_id], Finish.EOS), 0)
    assert response.text == text
    assert response.tokens.tolist() == [*ids, tokenizer.eos_id]
    assert len(_steps(prepared, response).of_token) == len(ids) + 1


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("text", ["\nSo it is 5.", "\n#### 5", "", "\nTom\n"])
def test_a_stop_string_cuts_ids_logprobs_and_text_at_one_place(name, text):
    tokenizer = SMALL[name]()
    prepared = gsm8k_setup(tokenizer)
    ids = tokenizer.encode_continuation(text + STOP)
    response = read_response(prepared, samples_of(ids, Finish.STOP), 0)
    assert response.text == (text + STOP)[: (text + STOP).index(STOP)]
    kept = len(response.tokens)
    assert response.tokens.tolist() == ids[:kept]
    assert len(response.logprob) == len(response.logprob_full) == kept
    assert_array_equal(response.logprob_full, 2 * response.logprob)
    assert len(_steps(prepared, response).of_token) == kept
    # The shortest prefix that holds the text: at most its last token reaches into the stop string.
    assert tokenizer.decode(ids[:kept]).startswith(response.text)
    assert not kept or len(tokenizer.decode(ids[: kept - 1])) < len(response.text)
    # No end of sequence is invented.
    assert tokenizer.eos_id not in with_end(prepared, response, False, 4).tokens


def test_a_token_that_reaches_into_the_stop_string_stays_whole():
    """As in a full stop that is merged with the newlines of the stop string."""
    tokenizer = byte_level()
    table = tokenizer.bytes_of_ids
    merged = next(i for i, piece in enumerate(table) if piece.endswith(b".\n\n\n"))
    before = [table.index(b"5")]
    ids = [*before, merged, *tokenizer.encode("Problem:")]
    response = read_response(gsm8k_setup(tokenizer), samples_of(ids, Finish.STOP), 0)
    assert response.text == "5" + table[merged].decode().rstrip("\n")
    assert response.tokens.tolist() == [*before, merged]


@pytest.mark.parametrize("name", SMALL)
def test_prompts_and_demonstrations_begin_with_one_bos_and_the_same_ids(name):
    tokenizer = SMALL[name]()
    problems = [Problem(id=t, problem=t, solution="\n3") for t in ("Tom has 3", "<s> How ma", "")]
    task = SimpleNamespace(
        sft_split="train",
        load=lambda split: problems,
        prompt=lambda p: p.problem + "\n\nSolution:",
        target=lambda p: p.solution,
    )
    prompted = setup._prompts(task, tokenizer, "train")
    config = replace(CONFIG, sft=replace(CONFIG.sft, batch=1, max_length=512))
    prepared = replace(setup_of(config), tokenizer=tokenizer, task=task)
    shown = supervised.demonstrations(prepared)
    for prompt, demonstration in zip(prompted, shown, strict=True):
        tokens, length = demonstration.tokens, demonstration.prompt_length
        assert_array_equal(tokens[:length], prompt.tokens)
        assert tokens[0] == tokenizer.bos_id
        assert (tokens == tokenizer.bos_id).sum() == 1
        assert tokens[-1] == tokenizer.eos_id
        assert (tokens == tokenizer.eos_id).sum() == 1


@pytest.mark.parametrize("filler", [0, 2])
def test_tokens_that_equal_the_filler_or_the_end_are_masked_by_length_alone(filler):
    """pad = eos, pad = unk, pad = 0: what is padding follows from lengths, never from ids."""
    prompts = [np.array([1, filler]), np.array([1, 5, 6])]
    tokens = [np.array([1, filler, filler, 7, filler]), np.array([1, 5, 6, filler])]
    old = SimpleNamespace(logp=np.zeros((2, 16), np.float32))
    credit = SimpleNamespace(token_advantages=[np.ones(3), np.ones(1)], old=old)
    rows = learning._rows(SimpleNamespace(tokens=tokens, prompts=prompts), credit, old)
    assert_array_equal(rows["length"], [5, 4])
    assert_array_equal(rows["is_response"].nonzero(), [[0, 0, 0, 1], [2, 3, 4, 3]])
    assert_array_equal(rows["advantages"] == 1, rows["is_response"])

"""Ids, bytes, texts and character offsets agree, for every kind of tokenizer."""

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from tests import small_tokenizers
from tests.shared_data import REASON, shared_data
from tests.small_tokenizers import SMALL, TRICKY
from vinejax.config import UserError
from vinejax.tokenizer import FastTokenizer, SpecialTokens, load_tokenizer

REAL = ("smollm2", "llama2", "llama2/tokenizer.model", "deepseek-llm")


@pytest.fixture(params=SMALL)
def tokenizer(request):
    return SMALL[request.param]()


@pytest.fixture(params=REAL)
def real(request):
    data = shared_data()
    if data is None:
        pytest.skip(REASON)
    return request.param, load_tokenizer(data / "tokenizers" / request.param)


def real_texts() -> list[str]:
    data = shared_data()
    with gzip.open(data / "math_test.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line, _ in zip(file, range(150), strict=False)]
    texts = [row["problem"] + "\n\n" + row["solution"] for row in rows]
    with (data / "gsm8k_test.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line, _ in zip(file, range(150), strict=False)]
    return texts + [row["question"] + "\n" + row["answer"] for row in rows]


def random_ids(tokenizer, count, seed):
    return np.random.default_rng(seed).integers(0, tokenizer.vocab_size, count).tolist()


def test_text_survives_the_round_trip(tokenizer):
    for text in (*TRICKY, *small_tokenizers.lines()[:50]):
        assert tokenizer.decode(tokenizer.encode(text), start=True) == text


def test_text_of_prompt_and_response_is_their_joint_text(tokenizer):
    """Wherever a sequence is cut between characters."""
    for text in (*TRICKY, *small_tokenizers.lines()[:20]):
        ids = tokenizer.encode(text)
        for cut in range(len(ids) + 1):
            head = tokenizer.decode(ids[:cut], start=True)
            if "\ufffd" not in head:
                assert head + tokenizer.decode(ids[cut:], start=cut == 0) == text


def test_continuation_keeps_its_leading_space():
    for make in SMALL.values():
        tokenizer = make()
        head, tail = tokenizer.encode_pair("Tom has 3", " red pens")
        assert tokenizer.decode(head, start=True) == "Tom has 3"
        assert tokenizer.decode(tail) == " red pens"


def test_llama_dummy_space_is_dropped_only_at_the_start_of_a_sequence():
    tokenizer = small_tokenizers.llama_pieces()
    ids = tokenizer.encode("Tom")
    assert tokenizer.dummy_space
    assert tokenizer.token_bytes(ids[0]).startswith(b" ")
    assert tokenizer.decode(ids) == " Tom"
    assert tokenizer.decode(ids, start=True) == "Tom"
    assert tokenizer.decode(tokenizer.encode("Tom", bos=True), start=True) == "Tom"


def test_encode_continuation_adds_no_dummy_space(tokenizer):
    for text in ("\nTom has 3.\n", " red pens", "pens", "4+5=9", "🙂"):
        assert tokenizer.decode(tokenizer.encode_continuation(text)) == text


def test_encode_pair_starts_with_the_ids_of_the_prompt(tokenizer):
    """Also where the joint text would merge over the border, as in `How ma` + `ny`."""
    for prompt, response in (("Solution:", "\nTom has 3."), ("How ma", "ny are left?")):
        head, tail = tokenizer.encode_pair(prompt, response)
        assert head == tokenizer.encode(prompt)
        assert tokenizer.decode(tail) == response


def test_bos_is_put_in_front_once_and_on_request_only(tokenizer):
    ids = tokenizer.encode("Tom has 3")
    assert tokenizer.bos_id not in ids
    assert tokenizer.encode("Tom has 3", bos=True) == [tokenizer.bos_id, *ids]


def test_special_tokens_in_a_text_are_text(tokenizer):
    special = {tokenizer.bos_id, tokenizer.eos_id}
    for text in TRICKY:
        assert not special & set(tokenizer.encode(text))


def test_pad_is_not_taken_from_eos(tokenizer):
    assert tokenizer.pad_id == 0 != tokenizer.eos_id


def test_special_tokens_have_no_bytes_and_others_spell_the_text(tokenizer):
    assert tokenizer.token_bytes(tokenizer.eos_id) == b""
    assert tokenizer.token_bytes(tokenizer.bos_id) == b""
    ids = tokenizer.encode_continuation("½ cakes\n")
    assert b"".join(tokenizer.token_bytes(i) for i in ids) == "½ cakes\n".encode()


def test_byte_pieces_and_spaces_of_sentencepiece():
    for tokenizer in (small_tokenizers.llama_pieces(), small_tokenizers.llama_fast()):
        table = tokenizer.bytes_of_ids
        # 3 special tokens, then the 256 bytes in order: Llama 2's layout.
        assert table[3 : 3 + 256] == [bytes([value]) for value in range(256)]
        assert b" has" in table
        assert table[tokenizer.encode("\n")[-1]] == b"\n"


def test_ids_outside_the_vocabulary_are_refused(tokenizer):
    for token in (-1, tokenizer.vocab_size):
        with pytest.raises(ValueError, match="outside"):
            tokenizer.decode([token])


def test_char_starts_follow_from_the_decoded_prefixes(tokenizer):
    """Independent rule: a token starts at the character that its first byte belongs to, found by
    decoding all bytes before it."""
    for seed in range(20):
        ids = random_ids(tokenizer, 40, seed)
        starts = tokenizer.char_starts(ids)
        text = tokenizer.decode(ids)
        assert len(starts) == len(ids)
        assert starts == sorted(starts)
        assert all(0 <= start <= len(text) for start in starts)
    text = "Zoë 北京 🙂 has ½"
    ids = tokenizer.encode_continuation(text)
    offset = 0
    for token, start in zip(ids, tokenizer.char_starts(ids), strict=True):
        # Characters that are complete before this byte, counted by leaving out the cut one.
        assert start == len(text.encode()[:offset].decode(errors="ignore"))
        offset += len(tokenizer.token_bytes(token))


def test_char_starts_of_broken_utf8_match_the_replacement_characters(tokenizer):
    """Joining the texts between the starts gives the whole text, also for random bytes."""
    by_byte = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size)}
    draw = random.Random(1)
    for _ in range(200):
        data = bytes(draw.choice((0x41, 0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xF0)) for _ in range(12))
        ids = [by_byte[bytes([value])] for value in data]
        starts, text = tokenizer.char_starts(ids), tokenizer.decode(ids)
        assert text == data.decode(errors="replace")
        for at, start in enumerate(starts):
            if at == 0 or start != starts[at - 1]:
                # The token is the first of its character: what precedes is complete.
                assert data[:at].decode(errors="replace") == text[:start]


def test_special_token_starts_where_the_next_text_starts(tokenizer):
    ids = tokenizer.encode_continuation("pens")
    starts = tokenizer.char_starts([*ids, tokenizer.eos_id])
    assert starts[-1] == 4
    assert tokenizer.decode([*ids, tokenizer.eos_id]) == "pens"


def test_fast_and_sentencepiece_give_the_same_ids():
    pieces, fast = small_tokenizers.llama_pieces(), small_tokenizers.llama_fast()
    draw = random.Random(0)
    alphabet = "".join(small_tokenizers.lines()[:5]) + "  \n\n北🙂"
    for _ in range(300):
        text = "".join(draw.choice(alphabet) for _ in range(draw.randint(0, 60)))
        assert fast.encode(text) == pieces.encode(text)


def test_saved_tokenizer_loads_here_and_in_transformers_with_the_same_ids(tokenizer, tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizer.save(tmp_path)
    again = load_tokenizer(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in small_tokenizers.lines()[:20] + tuple(t for t in TRICKY if "<" not in t):
        ids = tokenizer.encode(text)
        assert again.encode(text) == ids
        assert theirs.encode(text, add_special_tokens=False) == ids
    assert (again.bos_id, again.eos_id) == (tokenizer.bos_id, tokenizer.eos_id)
    assert (theirs.bos_token_id, theirs.eos_token_id) == (tokenizer.bos_id, tokenizer.eos_id)
    assert theirs.pad_token_id is None


def test_saved_sentencepiece_model_loads_by_itself(tmp_path):
    tokenizer = small_tokenizers.llama_pieces()
    tokenizer.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    assert load_tokenizer(tmp_path).encode("Tom has 3") == tokenizer.encode("Tom has 3")


def test_special_ids_are_found_in_every_file_that_may_hold_them(tmp_path):
    tokenizer = small_tokenizers.byte_level()
    end = tokenizer.encode("a")[0]
    cases = (
        ("tokenizer_config.json", {"eos_token": {"content": "<|end|>"}}, tokenizer.eos_id),
        ("special_tokens_map.json", {"eos_token": "<|end|>", "pad_token": "<|end|>"}, None),
        ("generation_config.json", {"eos_token_id": [end, 0]}, end),
        ("config.json", {"eos_token_id": end, "bos_token_id": -1}, end),
    )
    for number, (file, content, expected) in enumerate(cases):
        folder = tmp_path / str(number)
        tokenizer.save(folder)
        (folder / "tokenizer_config.json").unlink()
        (folder / file).write_text(json.dumps(content))
        loaded = load_tokenizer(folder)
        assert loaded.eos_id == (tokenizer.eos_id if expected is None else expected)
        assert loaded.bos_id is None
        # A declared pad is respected, even if it is eos; an undeclared one is not eos.
        assert loaded.pad_id == (tokenizer.eos_id if "pad_token" in content else 0)


def test_bad_tokenizers_are_refused_with_the_remedy(tmp_path):
    with pytest.raises(UserError, match="no folder"):
        load_tokenizer(tmp_path / "missing")
    with pytest.raises(UserError, match=r"neither tokenizer\.json nor tokenizer\.model"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        load_tokenizer(tmp_path)
    small_tokenizers.byte_level().save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(UserError, match="add eos_token"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<nope>"}')
    with pytest.raises(UserError, match="<nope>"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"not a model")
    with pytest.raises(UserError, match="cannot be read"):
        load_tokenizer(tmp_path / "tokenizer.model")


def test_wordpiece_is_refused_because_its_tokens_do_not_spell_the_text():
    backend = Backend(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece()
    with pytest.raises(UserError, match="not supported"):
        FastTokenizer(backend, SpecialTokens(eos="[UNK]"))


def test_metaspace_variant_strips_its_dummy_space():
    vocab = {"<s>": 0, "</s>": 1, "\u2581": 2, "a": 3, "b": 4, "\u2581a": 5}
    backend = Backend(models.BPE(vocab, [("\u2581", "a")]))
    backend.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", prepend_scheme="first", split=False)
    backend.decoder = decoders.Metaspace("\u2581", prepend_scheme="first", split=False)
    tokenizer = FastTokenizer(backend, SpecialTokens(bos="<s>", eos="</s>"))
    ids = tokenizer.encode("ab a")
    assert tokenizer.dummy_space
    assert tokenizer.decode(ids, start=True) == "ab a"
    assert tokenizer.char_starts(ids, start=True) == [0, 1, 2]


def test_importing_the_tokenizers_brings_no_jax():
    code = "import sys, vinejax.tokenizer, vinejax.stop, vinejax.tasks, vinejax.grading\n"
    code += "assert 'jax' not in sys.modules and 'transformers' not in sys.modules"
    root = Path(__file__).resolve().parents[1]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


@pytest.mark.parametrize("name", ["llama2", "llama2/tokenizer.model", "deepseek-llm"])
def test_real_tokenizers_give_the_published_ids(name):
    data = shared_data()
    if data is None:
        pytest.skip(REASON)
    path = data / "tokenizers" / name.split("/")[0] / "vectors.json"
    vectors = json.loads(path.read_text(encoding="utf-8"))
    tokenizer = load_tokenizer(data / "tokenizers" / name)
    assert len(vectors) == 47
    assert [tokenizer.encode(v["text"]) for v in vectors] == [v["ids"] for v in vectors]


def test_real_tokenizers_keep_300_texts_and_their_offsets(real):
    name, tokenizer = real
    backend = None
    if not name.endswith(".model"):
        backend = Backend.from_file(str(shared_data() / "tokenizers" / name / "tokenizer.json"))
    for text in real_texts():
        ids, starts = tokenizer.encode_with_offsets(text)
        assert tokenizer.decode(ids, start=True) == text
        assert starts == tokenizer.char_starts(ids, start=True)
        if backend is not None:
            theirs = backend.encode(text, add_special_tokens=False)
            assert ids == theirs.ids
            assert starts == [begin for begin, _ in theirs.offsets]


def test_llama_files_of_both_formats_give_the_same_ids():
    data = shared_data()
    if data is None:
        pytest.skip(REASON)
    fast = load_tokenizer(data / "tokenizers" / "llama2")
    pieces = load_tokenizer(data / "tokenizers" / "llama2" / "tokenizer.model")
    texts = real_texts()
    assert [fast.encode(t) for t in texts] == [pieces.encode(t) for t in texts]
    assert fast.bytes_of_ids == pieces.bytes_of_ids


def test_real_tokenizers_saved_load_in_transformers_with_the_same_ids(real, tmp_path):
    transformers = pytest.importorskip("transformers")
    _, tokenizer = real
    tokenizer.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in real_texts()[::10]:
        assert theirs.encode(text, add_special_tokens=False) == tokenizer.encode(text)
    assert theirs.eos_token_id == tokenizer.eos_id

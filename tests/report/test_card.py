"""The model card: a header that parses whatever a configuration says, and the run's own numbers."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from huggingface_hub import ModelCard

from experiments import configs
from tests.report.folders import SUMMARY, write_run
from tests.small_tokenizers import byte_level
from vinejax import tasks
from vinejax.config import Config, PolicyConfig, SftConfig, UserError, from_dict, to_dict
from vinejax.report import card, write_json
from vinejax.report.card import origin
from vinejax.report.page.runs import read_runs

STRICT = {
    "sft_strict_pass_at_1": 0.24, "sft_strict_interval": [0.19, 0.29],
    "final_strict_pass_at_1": 0.47, "final_strict_interval": [0.42, 0.52],
}  # fmt: skip
APACHE = "                                 Apache License\n                           Version 2.0, "


def exported(run: Path, base: origin.Base | None = None, **changes: Any) -> card.Exported:
    """What the export of a run folder's policy of iteration 3 would describe."""
    found = read_runs([run])[0]
    config = changes.pop("config", from_dict(found.config))
    task = tasks.get(config.task.name, **config.task.arguments())
    tokenizer = task.tokenizer() or byte_level()
    return replace(card.Exported(found, config, 3, 1234, task, tokenizer, base), **changes)


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", {}, summary=SUMMARY | STRICT)


def of_gsm8k(run: Path, base: origin.Base | None, **policy: Any) -> card.Exported:
    config = configs.get("gsm8k_smollm2", "vineppo")
    config = replace(config, iterations=3, policy=replace(config.policy, **policy))
    write_json(run / "config.json", to_dict(config))
    return exported(run, base)


def header_of(text: str) -> dict[str, Any]:
    """The header, read twice: as YAML, and by the hub's own reader."""
    _, raw, body = text.split("---\n", 2)
    found = yaml.safe_load(raw)
    assert ModelCard(text).data.to_dict() == found
    assert body.startswith("\n# ")
    return found


def test_the_header_of_a_policy_from_scratch(finished):
    text = card.card(exported(finished))
    assert text.startswith(
        "---\n"
        "library_name: transformers\n"
        "pipeline_tag: text-generation\n"
        "tags:\n"
        "- vinejax\n"
        "- vineppo\n"
        "- math\n"
        "---\n\n"
        "# tiny: vineppo on ledger\n"
    )
    header_of(text)
    assert "there is no base model whose licence binds them" in text


def test_the_header_of_a_policy_with_a_base_model(finished):
    base = origin.Base("owner/small", True, origin.Licence("README.md", "apache-2.0"))
    assert header_of(card.card(of_gsm8k(finished, base))) == {
        "language": "en",
        "license": "apache-2.0",
        "library_name": "transformers",
        "tags": ["vinejax", "vineppo", "math"],
        "base_model": "owner/small",
        "datasets": "openai/gsm8k",
        "pipeline_tag": "text-generation",
    }


def test_scores_are_those_of_the_summary(finished):
    text = card.card(of_gsm8k(finished, None))
    assert "| | `authors` grader, the reward | `strict` grader |" in text.replace("|  |", "| |")
    assert "| before reinforcement learning | 25.0 % (20.0 to 30.0) | 24.0 % (19.0 to 29.0) |" in (
        text
    )
    assert (
        "| **these weights**, after iteration 3 | 50.0 % (45.0 to 55.0) | 47.0 % (42.0 to 52.0) |"
        in text
    )
    assert "128 test problems x 4 responses, temperature 0.35, top-p 0.9, at most" in text
    assert "1,234 parameters" in text
    assert "best on validation" not in text  # these are the best
    assert "not finished" not in text


def test_the_best_iteration_is_told_where_it_is_another(tmp_path):
    summary = SUMMARY | {"best_iteration": 2, "best_interval": [None, None]}
    text = card.card(of_gsm8k(write_run(tmp_path / "run", {}, summary=summary), None))
    assert "| best on validation, iteration 2: not these weights | 51.0 % | unknown |" in text


def test_a_run_on_its_way_says_so_and_gives_what_is_known(tmp_path):
    run = write_run(tmp_path / "run", {}, iterations=3)
    config = json.loads((run / "config.json").read_text())
    write_json(run / "config.json", config | {"iterations": 10})
    text = card.card(exported(run))
    assert "after iteration 3 of 10" in text
    assert "**The run was not finished when they were exported**" in text
    assert "These weights were not tested. On validation the policy of iteration 3 had pass@1 " in (
        text
    )
    assert "50.0 % (40.0 to 60.0) (mean grade, 95 % interval" in text  # it has one grader
    young = card.card(exported(run, iteration=2))  # that validation is of a later policy
    assert "Nothing is known of their accuracy." in young
    header_of(young)


def test_numbers_of_other_weights_are_not_given_for_these(finished):
    assert "Nothing is known of their accuracy." in card.card(exported(finished, iteration=2))


def test_a_policy_of_sft_alone_has_no_reward(tmp_path):
    summary = SUMMARY | {"iterations": 0, "algorithm": "sft"}
    run = write_run(tmp_path / "run", {}, algorithm="sft", summary=summary)
    text = card.card(exported(run, iteration=0))
    assert "| **these weights** | 50.0 % (45.0 to 55.0) |\n" in text
    assert "the reward" not in text
    assert "imitates demonstrations" in text


@pytest.mark.parametrize(
    ("task", "bos", "adds", "sentence"),
    [
        ("ledger", True, False, "the tokenizer in this folder adds none by itself"),
        ("ledger", True, True, "the tokenizer in this folder would put it there as well"),
        ("gsm8k", False, False, "has no beginning-of-sequence token"),
    ],
)
def test_prompt_and_first_token_are_those_of_training(
    finished, monkeypatch, task, bos, adds, sentence
):
    found = of_gsm8k(finished, None) if task == "gsm8k" else exported(finished)
    monkeypatch.setattr(found.tokenizer, "adds_bos", adds)
    if not bos:
        monkeypatch.setattr(found.tokenizer, "bos_id", None)
    text = card.card(found)
    assert sentence in text
    assert ("ids = [tokenizer.bos_token_id]" in text) == bos
    namespace: dict[str, Any] = {}
    for line in text.splitlines():
        if line.startswith(("template =", "prompt =")):
            exec(line, namespace)
    problem = namespace["prompt"]
    if task == "ledger":
        assert namespace["template"] == "{problem}:\n"
        assert problem == "4+3-9*7+1-5*3+2-8:\n"
    else:
        assert problem.startswith("[MATH_TASK] Problem:\nAda has 2 pens")
        assert problem.endswith("\n\nSolution:")
        assert r"stop_strings=['\n\n\nProblem:'], tokenizer=tokenizer" in text


@pytest.mark.parametrize("task", ["ledger", "gsm8k"])
def test_nobody_guesses_which_tokens_count(finished, monkeypatch, task):
    """Padding may have the id of a real token, by which transformers would hide that token."""
    seen: dict[str, Any] = {}

    class Model:
        def generate(self, ids, **more):
            seen.update(more, ids=ids)
            return np.concatenate([ids, [[7, 8]]], axis=1)

    class Tokenizer:
        bos_token_id = 0

        def __call__(self, prompt, add_special_tokens):
            return SimpleNamespace(input_ids=[3, 4, 5])

        def decode(self, ids, skip_special_tokens):
            return f"decoded {ids.tolist()}"

    def found_in(thing):
        return SimpleNamespace(from_pretrained=lambda folder: thing)

    theirs = SimpleNamespace(
        AutoModelForCausalLM=found_in(Model()), AutoTokenizer=found_in(Tokenizer())
    )
    monkeypatch.setitem(sys.modules, "transformers", theirs)
    monkeypatch.setitem(
        sys.modules, "torch", SimpleNamespace(tensor=np.array, ones_like=np.ones_like)
    )
    found = of_gsm8k(finished, None) if task == "gsm8k" else exported(finished)
    exec(card.card(found).split("```python\n")[1].split("```")[0], {})
    assert seen["ids"].tolist() == [[0, 3, 4, 5]]
    assert seen["attention_mask"].tolist() == [[1, 1, 1, 1]]
    assert "stop_strings" in seen or task == "ledger"


def test_a_lenient_grader_is_told_where_there_are_two(finished):
    lenient = "The `authors` grader is lenient"
    assert lenient not in card.card(exported(finished))
    assert lenient in card.card(of_gsm8k(finished, None))


def test_a_task_with_one_grader_has_one_column_of_scores(finished):
    text = card.card(exported(finished))
    assert "| before reinforcement learning | 25.0 % (20.0 to 30.0) |\n" in text
    assert "24.0 %" not in text
    assert "`strict`" not in text
    assert (
        "pass@1 is the mean grade of a response, the share that is right where grades are" in text
    )


def test_full_marks_stand_beside_a_mean_of_partial_grades(tmp_path):
    full = {"sft_full_marks_share": 0.25, "final_full_marks_share": 0.375}
    run = write_run(tmp_path / "run", {}, summary=SUMMARY | full)
    text = card.card(exported(run))
    assert "after iteration 3 | 50.0 % (45.0 to 55.0); full marks 37.5 % |" in text
    assert "before reinforcement learning | 25.0 % (20.0 to 30.0) |" in text  # all of it
    assert "some got a part of the marks" in text


def test_a_task_of_the_user_s_own_has_its_own_name_and_no_other_task_s_example(finished):
    name = "examples.own_task:Sums"
    config = from_dict(json.loads((finished / "config.json").read_text()))
    config = replace(config, task=replace(config.task, name=name, options=None))
    text = card.card(exported(finished, config=config))
    assert "\n# tiny: vineppo on sums\n" in text
    assert "problems of one task, sums." in text
    assert "sums, a task of the run's own (`task.name` is examples.own\\_task:Sums)." in text
    assert "Ada" not in text
    assert "'HERE THE TEXT OF A PROBLEM'" in text


HOSTILE = [
    "x: y\n---\nlicense: mit",
    "</td><script>alert(1)</script>",
    "`` | a | [b](http://example.com) **c** # d",
    "'\"\\ {{x}} !!python/object %TAG & *",
    "‮right to left\x00",
    "```\n# heading",
    "- item",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_words_break_neither_header_nor_text(finished, text):
    fields = {"license": text, "license_name": text, "license_link": f"https://{text}"}
    (finished / "README.md").write_text(f"---\n{yaml.safe_dump(fields)}---\n")
    licence = origin.licence_of(finished)
    assert licence is not None
    base = origin.Base(origin.shown(f"/home/someone/{text}"), False, licence)
    config = replace(configs.get("tiny", "vineppo"), name=text, algorithm=text)
    config = replace(config, task=replace(config.task, path=f"/home/someone/{text}"))
    found = exported(finished, base)
    whole = card.card(replace(found, config=config))
    header = header_of(whole)
    assert header["tags"][1] == header["license"] == " ".join(text.split())
    assert "base_model" not in header
    assert "someone" not in whole
    body = whole.split("---\n", 2)[2]
    assert body.count("\n## ") == 7
    assert body.count("\n```") == 4  # two blocks
    assert not any(line.startswith(("<", "- item", "license")) for line in body.splitlines())
    assert "<script>" not in body
    assert "\x00" not in body


def test_no_path_of_the_machine_is_published(finished):
    hidden = "/home/someone/secret"
    config = configs.get("gsm8k_smollm2", "vineppo")
    assert config.task.options is not None
    config = replace(
        config,
        policy=PolicyConfig(path=f"{hidden}/base", tokenizer=f"~{hidden}/words"),
        sft=SftConfig(path=f"{hidden}/tuned/"),
        task=replace(
            config.task, path=f"{hidden}/data", options=replace(config.task.options, hub=hidden)
        ),
        name=f"C:{hidden}".replace("/", "\\"),
    )
    base = origin.Base(origin.shown(f"{hidden}/tuned/"), False, None)
    texts = card.files(exported(finished, base, config=config))
    assert "someone" not in "".join(texts.values())
    read = from_dict(json.loads(texts["vinejax_config.json"]))
    assert (read.policy.path, read.policy.tokenizer) == ("base", "words")
    assert (read.sft.path, read.task.path, read.name) == ("tuned", "data", "secret")
    assert replace(read, policy=config.policy, sft=config.sft, task=config.task) == replace(
        config, name="secret"
    )
    assert "The problems came from files in a folder data." in texts["README.md"]


def test_hub_ids_stay_what_they_are(tmp_path, monkeypatch):
    assert origin.shown("owner/name") == "owner/name"
    assert origin.published({"policy": {"path": "owner/name"}}) == {
        "policy": {"path": "owner/name"}
    }
    (tmp_path / "owner" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert origin.shown("owner/name") == "name"  # a folder of that name is what would be read
    assert not origin.on_hub("owner/name")


CARD = "---\nlicense: {}\n---\n# A model\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"README.md": CARD.format("llama3.2")}, ("README.md", "llama3.2")),
        ({"README.md": CARD.format("mit"), "LICENSE": APACHE}, ("README.md", "mit")),
        ({"README.md": "# No header", "LICENSE": APACHE}, ("LICENSE", "apache-2.0")),
        ({"LICENSE.txt": "MIT License\n\nCopyright (c) A B\n"}, ("LICENSE.txt", "mit")),
        ({"LICENSE.md": "MIT License (modified)\n\nCopyright"}, ("LICENSE.md", None)),
        ({"LICENSE": "\n\n"}, None),
        ({"config.json": '{"license": "cc-by-4.0"}'}, ("config.json", "cc-by-4.0")),
        ({"config.json": '{"license": 3}'}, None),
        ({"README.md": CARD.format("[no")}, None),
        ({"README.md": CARD.format("no")}, None),  # false, in YAML
        ({"README.md": "---\n- a\n---\n", "config.json": "["}, None),
    ],
)
def test_a_licence_is_read_or_unknown(files, expected, tmp_path):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    found = origin.licence_of(tmp_path)
    assert (found and (found.where, found.identifier)) == expected


def test_the_terms_of_an_other_licence_go_with_it(tmp_path, finished):
    more = "other\nlicense_name: house\nlicense_link: https://example.com/terms"
    (tmp_path / "README.md").write_text(CARD.format(more))
    base = origin.Base("owner/small", True, origin.licence_of(tmp_path))
    text = card.card(exported(finished, base))
    header = header_of(text)
    assert (header["license_name"], header["license_link"]) == (
        "house",
        "https://example.com/terms",
    )
    assert "is under other \\(house\\), as its README.md says" in text
    (tmp_path / "README.md").write_text(CARD.format("other\nlicense_link: LICENSE"))
    found = origin.licence_of(tmp_path)
    assert found is not None
    assert found.link is None  # that file is not exported


def test_a_licence_that_is_not_stated_is_not_guessed(finished):
    text = card.card(exported(finished, origin.Base("small", False, None)))
    assert "license" not in header_of(text)
    assert "not stated by its folder: look it up" in text
    licence = origin.Licence("LICENSE", begins="HOUSE *RULES*")
    text = card.card(exported(finished, origin.Base("small", False, licence)))
    assert "license" not in header_of(text)
    assert 'that begins with "HOUSE \\*RULES\\*"' in text


def with_base(policy_path: str | None, sft_path: str | None) -> Config:
    config = configs.get("tiny", "vineppo")
    return replace(
        config,
        policy=replace(config.policy, path=policy_path),
        sft=replace(config.sft, path=sft_path),
    )


def test_the_base_is_what_training_began_with(tmp_path):
    for name in ("base", "tuned"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "README.md").write_text(CARD.format(f"of-{name}"))
    base, tuned = str(tmp_path / "base"), str(tmp_path / "tuned")
    assert origin.base_of(with_base(None, None)) is None
    for config, name in ((with_base(base, None), "base"), (with_base(base, tuned), "tuned")):
        found = origin.base_of(config)
        assert found == origin.Base(name, False, origin.Licence("README.md", f"of-{name}"))
    with pytest.raises(UserError, match="no such folder"):
        origin.base_of(with_base("/no/such/model", None))


def test_the_card_is_the_same_every_time(finished):
    assert card.files(exported(finished)) == card.files(exported(finished))

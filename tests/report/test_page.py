"""What the report page holds: numbers by hand, texts that stay texts, and a bound on its size."""

import base64
import gzip
import hashlib
import html
import json
import re
from pathlib import Path

import numpy as np
import pytest

from experiments import report as command
from tests.report.folders import SUMMARY, line, record, rollouts, write_run
from vinejax.config import UserError
from vinejax.report import RolloutLog, page, write_json
from vinejax.report.page.curves import POINTS, curves, phases
from vinejax.report.page.runs import read_runs
from vinejax.report.page.text import shortened, visible
from vinejax.report.page.trajectories import problems_of, view
from vinejax.tokenizer import byte_tokenizer

PIECES, VALUES = ["1+1=2\n", "2+1=4\n", "#### 4"], [0.75, 1.0, 0.25]


def render(*folders: Path) -> str:
    return page.render(read_runs(folders))


def block(text: str, name: str):
    found = re.search(f'<script type="text/plain" id="{name}">([^<]*)</script>', text)
    assert found, name
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


def about(text: str):
    found = re.search('<script type="application/json" id="about">([^<]*)</script>', text)
    assert found
    return json.loads(found[1])


def shown_text(text: str) -> str:
    """The static part as a reader sees it, without tags."""
    return html.unescape(re.sub(r"<[^>]*>", " ", text.split('id="about"')[0].split("</style>")[1]))


def test_a_trajectory_is_cut_into_steps_with_value_advantage_and_rollouts(tmp_path):
    given = record(PIECES, VALUES, 0.0, rollouts=rollouts([[1, 1, 1, 0], [1] * 4, [0, 0, 0, 1]]))
    text = render(write_run(tmp_path / "run", {3: [given]}, summary=SUMMARY))
    data = block(text, "run0-3")
    assert data["problems"] == [{"id": "train/7", "text": "1+1+1", "solution": "1+1=2\n2+1=3"}]
    assert data["items"] == [
        {
            "p": 0, "r": 0.0, "f": "eos", "n": 3, "s": PIECES, "v": VALUES,
            "a": [0.25, -0.75, -0.25],
            "k": [[1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1]],
        }
    ]  # fmt: skip
    assert block(text, "run0-3-0") == [["2+1=3"] * 4] * 3
    (iteration,) = about(text)["runs"][0]["iterations"]
    assert iteration == {"number": 3, "id": "run0-3", "shown": 1, "sampled": 1, "texts": [0]}


def test_states_of_a_step_become_one_with_the_first_value_and_all_advantages():
    # Steps start at tokens 0 and 3, states at every second token: 0, 2 | 4.
    given = record(list("abcde"), [0.5] * 5, 1.0) | {
        "step_starts": [0, 3],
        "state_starts": [0, 2, 4],
        "text_starts": [0, 2, 4],
        "values": [0.5, 0.75, 0.25],
        "advantages": [0.25, -0.5, 0.75],
        "rollouts": rollouts([[1, 0], [1, 1], [0, 0]]),
    }
    found = view(given, {"train/7": 0}, None)
    assert found is not None
    assert found.item["s"] == ["abcd", "e"]
    assert found.item["v"] == [0.5, 0.25]
    assert found.item["a"] == [-0.25, 0.75]
    assert found.item["k"] == [[1, 0], [0, 0]]
    assert found.swing == 0.75


def test_the_tokenizer_gives_the_texts_that_the_files_do_not_have(tmp_path):
    tokens = record(PIECES, VALUES, 1.0)
    bare = {k: v for k, v in tokens.items() if "text" not in k and k != "solution"}
    ledger = bare | {"tokens": [1, 7, 16, 8, 5, 7, 16, 8], "prompt_length": 5}
    text = render(write_run(tmp_path / "run", {1: [ledger]}))
    data = block(text, "run0-1")
    assert data["problems"][0]["text"] == "1+2:\n"  # the whole prompt
    assert data["items"][0]["s"] == ["1", "+", "2"]


def test_records_without_values_advantages_or_tokens_are_shown_as_far_as_they_go(tmp_path):
    plain = {k: v for k, v in record(PIECES, VALUES, 1.0).items() if k not in ("values",)}
    nothing = {k: v for k, v in plain.items() if k != "advantages"}
    empty = record([], [], 0.0, unfinished=True) | {"tokens": [1, 5]}
    folder = write_run(tmp_path / "run", {1: [plain, nothing, empty]}, "grpo")
    items = block(render(folder), "run0-1")["items"]
    assert ["v" in item for item in items] == [False, False, True]
    assert ["a" in item for item in items] == [True, False, True]
    assert items[2]["s"] == items[2]["v"] == items[2]["a"] == []
    assert items[2]["u"] == 1


def test_an_old_file_that_cannot_be_cut_is_one_text():
    old = {k: v for k, v in record(PIECES, VALUES, 0.0).items() if k != "text_starts"}
    found = view(old, {"train/7": 0}, None)
    assert found is not None
    assert found.item["s"] == ["".join(PIECES)]
    assert "v" not in found.item
    assert view({k: v for k, v in old.items() if k != "text"}, {"train/7": 0}, None) is None


def test_headline_numbers_have_their_intervals(tmp_path):
    text = shown_text(render(write_run(tmp_path / "run", {}, summary=SUMMARY)))
    words = re.sub(r"\s+", " ", text)
    for part in ("After SFT 25.0 % 20.0 to 30.0", "At the end 50.0 % 45.0 to 55.0",
                 "Best iteration: 3 51.0 % 46.0 to 56.0", "128 × 4 samples", "finished, 3",
                 "pass@2 - 62.5 % -", "time of the iterations 0:06",
                 "time with SFT and tests 1:03"):  # fmt: skip
        assert part in words, part


def test_times_compared_are_those_of_the_iterations(tmp_path):
    """A run that took its SFT from another (--start) has spent less in all, for no merit of it."""
    own = write_run(tmp_path / "a", {}, summary=SUMMARY | {"seconds": 700.0})
    taken = write_run(tmp_path / "b", {}, "grpo", summary=SUMMARY | {"seconds": 20.0})
    words = re.sub(r"\s+", " ", shown_text(render(own, taken)))
    assert words.count("192 300 0:06 ") == 2  # episodes, tokens, 3 x 2 seconds
    assert "11:40" not in words
    assert (
        "SFT, which a run may have taken from another one (--start), and tests are not in it"
        in (words)
    )


def test_several_runs_are_a_table_with_what_differs(tmp_path):
    first = write_run(tmp_path / "a", {}, summary=SUMMARY)
    second = write_run(tmp_path / "b", {}, "grpo", seed=4)
    words = re.sub(r"\s+", " ", shown_text(render(first, second, first)))
    assert "2 runs compared" in words
    assert "vineppo, seed 0 25.0 %" in words
    assert "grpo, seed 4 not finished: 3 of 3 iterations - 50.0 % 40.0 to 60.0" in words
    differing = words.split("What differs")[1].split("All fields")[0]
    assert "algorithm vineppo grpo" in differing
    assert "seed 0 4" in differing
    assert "prompts" not in differing


def test_equal_names_are_told_apart_by_their_folders(tmp_path):
    folders = [write_run(tmp_path / name, {}) for name in ("a", "b")]
    folders.append(write_run(tmp_path / "c" / "a", {}))
    names = [run.name for run in read_runs(folders)]
    assert names == ["vineppo, seed 0 (a)", "vineppo, seed 0 (b)", "vineppo, seed 0 (a), 2"]


def test_curves_have_the_axes_and_all_numbers(tmp_path):
    (run,) = read_runs([write_run(tmp_path / "run", {})])
    found = curves(run)
    assert found["x"] == {
        "iterations": [1, 2, 3],
        "episodes": [64, 128, 192],  # 16 prompts x 4 samples
        "tokens": [100, 200, 300],
        "seconds": [2.0, 4.0, 6.0],
    }
    assert found["y"]["kl_k3"] == [0.01, None, 0.01]
    assert found["y"]["validation/pass_at_1"] == [None, None, 0.5]
    assert not {"iteration", "time/written"} & set(found["y"])
    # By hand: 3 x (1.2, 0.5) of 3 x 2 seconds; the rest has no phase of its own.
    assert phases(run)["wall"] == pytest.approx({"values": 3.6, "update": 1.5, "other": 0.9})
    assert phases(run)["cpu"] == pytest.approx({"values": 3.0, "other": 1.5})


def test_the_validation_of_the_start_is_at_0_of_all_axes(tmp_path):
    folder = write_run(tmp_path / "run", {})
    write_json(folder / "start.json", {"iteration": 0, "validation/pass_at_1": 0.25})
    found = curves(read_runs([folder])[0])
    assert all(axis[0] == 0 for axis in found["x"].values())
    assert found["x"]["seconds"] == [0, 2.0, 4.0, 6.0]
    assert found["y"]["validation/pass_at_1"] == [0.25, None, None, 0.5]
    assert found["y"]["reward"][0] is None
    # A run of an earlier version has written it down only where no iteration was better.
    best = SUMMARY | {"best_iteration": 0, "best_validation_pass_at_1": 0.75}
    found = curves(read_runs([write_run(tmp_path / "old", {}, summary=best)])[0])
    assert found["y"]["validation/pass_at_1"] == [0.75, None, None, 0.5]


def test_a_problem_whose_text_was_not_kept_is_read_from_its_prompt():
    tokenizer = byte_tokenizer()

    def of(problem: str, name: str, **more: str) -> dict:
        prompt = tokenizer.encode(f"Problem: {problem}\nSolution:")
        return {"problem": name, "tokens": [*prompt, 1], "prompt_length": len(prompt), **more}

    kept, other = of("1+1", "a", problem_text="1+1"), of("2+2", "b")
    _, shown = problems_of([kept, other], tokenizer)
    assert shown == [{"id": "a", "text": "1+1"}, {"id": "b", "text": "2+2"}]
    _, shown = problems_of([other], tokenizer)  # nothing says what is around a problem
    assert shown == [{"id": "b", "text": "Problem: 2+2\nSolution:", "prompt": 1}]
    strange = of("3+3", "c") | {"tokens": tokenizer.encode("3+3"), "prompt_length": 3}
    assert problems_of([kept, strange], tokenizer)[1][1] == {"id": "c", "text": "3+3", "prompt": 1}


def test_long_runs_are_thinned_out_but_keep_their_validations(tmp_path):
    folder = write_run(tmp_path / "run", {}, iterations=1)
    lines = [json.dumps(line(i, i == 1700)) for i in range(1, 2 * POINTS + 2)]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    found = curves(read_runs([folder])[0])
    assert found["thinned"]
    assert len(found["x"]["iterations"]) <= POINTS
    assert {1, 1700, 2 * POINTS + 1} <= set(found["x"]["iterations"])


def test_a_run_without_any_iteration_has_a_page(tmp_path):
    folder = write_run(tmp_path / "run", {}, iterations=1)
    (folder / "metrics.jsonl").unlink()
    text = render(folder)
    assert "no iteration has finished yet" in text
    assert about(text)["runs"][0]["iterations"] == []


def test_damaged_files_are_named_on_the_page(tmp_path):
    folder = write_run(tmp_path / "run", {1: [record(PIECES, VALUES, 1.0)]}, summary=SUMMARY)
    (folder / "summary.json").write_text("{")
    (folder / "rollouts" / "000002.jsonl.gz").write_bytes(b"\x1f\x8b\x08")
    text = render(folder)
    assert "summary.json cannot be read" in text
    described = about(text)["runs"][0]
    assert [it["number"] for it in described["iterations"]] == [1]
    assert any("iteration 2 cannot be read" in note for note in described["notes"])


def test_a_folder_without_a_run_is_refused_with_the_remedy(tmp_path):
    with pytest.raises(UserError, match="absent is not there: give a run folder"):
        read_runs([tmp_path / "absent"])
    with pytest.raises(UserError, match=r"holds no run .*\(its --out\)"):
        read_runs([tmp_path])
    write_run(tmp_path / "vineppo-seed0", {})
    with pytest.raises(UserError, match=r"give the run folders in it: vineppo-seed0"):
        read_runs([tmp_path])


HOSTILE = (
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<!--", "]]>",
    "&lt;b&gt;", "\\frac{1}{2} $x$ ${y} `z`", "😀", "\u202e1=2\u202c", "שלום", "a\0b\x1b[31m",
    "\u2028", "\ud800",
)  # fmt: skip


def test_nothing_that_a_run_says_becomes_markup(tmp_path):
    pieces = [*HOSTILE]
    given = record(
        pieces,
        [0.5] * len(pieces),
        0.0,
        problem=HOSTILE[0],
        problem_text=HOSTILE[1],
        rollouts=rollouts([[1.0]] * len(pieces), HOSTILE[0]),
        finish="<b>",
    )
    folder = write_run(tmp_path / "run", {1: [given]}, summary=SUMMARY)
    config = json.loads((folder / "config.json").read_text())
    config |= {"name": HOSTILE[0], "algorithm": HOSTILE[1]}
    (folder / "config.json").write_text(json.dumps(config))
    text = render(folder)
    assert text.isprintable() or not set(text) & set("\0\x1b\u2028\u202e")
    assert "<img" not in text
    scripts = re.findall(r"<script\b[^>]*>", text)
    assert set(scripts) <= {'<script type="application/json" id="about">', "<script>"} | {
        s for s in scripts if re.fullmatch(r'<script type="text/plain" id="[a-z0-9-]+">', s)
    }
    assert scripts.count("<script>") == 1
    data = block(text, "run0-1")
    assert data["items"][0]["s"][0] == HOSTILE[0]
    assert data["items"][0]["s"][7] == "⟨U+202E⟩1=2⟨U+202C⟩"
    assert data["items"][0]["s"][8:] == ["שלום", "a⟨U+0000⟩b⟨U+001B⟩[31m", "⟨U+2028⟩", "⟨U+D800⟩"]


def test_hidden_characters_are_spelled_and_letters_stay():
    assert visible("a\tb\nπ 👩‍👧 é") == "a\tb\nπ 👩‍👧 é"
    assert visible("\ufeff\u200b\x7f") == "⟨U+FEFF⟩⟨U+200B⟩⟨U+007F⟩"
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefg", 5) == "abcde… (2 characters left out)"


def test_the_policy_of_the_page_allows_its_own_scripts_and_no_request(tmp_path):
    text = render(write_run(tmp_path / "run", {}))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    rules = dict(rule.strip().split(" ", 1) for rule in html.unescape(policy[1]).split(";"))
    assert rules["default-src"] == "'none'"
    assert "connect-src" not in rules
    assert "unsafe" not in rules["script-src"]
    script = text.rsplit("<script>", 1)[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in rules["script-src"]
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", text.split("<script")[0])


def many(count: int) -> list[dict]:
    """Trajectories of 1,000 tokens, 10 steps and 9 rollouts of 700 characters a step."""
    rng = np.random.default_rng(0)
    letters = rng.integers(97, 123, 2_000_000).astype(np.uint8).tobytes().decode()  # hardly shrinks

    def text(length: int) -> str:
        start = int(rng.integers(0, len(letters) - length))
        return letters[start : start + length]

    found = []
    for m in range(count):
        values = (rng.integers(0, 10, 10) / 9).tolist()
        own = [[{"reward": 1.0, "text": text(700)} for _ in range(9)] for _ in range(10)]
        starts = list(range(0, 1_000, 100))
        found.append(
            record([text(400) for _ in range(10)], values, float(m % 2), rollouts=own)
            | {"problem": f"train/{m // 8}", "tokens": [9] * 1_100, "prompt_length": 100}
            | {"step_starts": starts, "state_starts": starts}
        )
    return found


def test_a_page_stays_below_its_limit_and_says_what_is_left_out(tmp_path):
    text = render(write_run(tmp_path / "run", {3: many(500)}))
    assert len(text.encode()) < page.LIMIT
    (run,) = about(text)["runs"]
    (iteration,) = run["iterations"]
    assert iteration["shown"] == 500
    items = block(text, "run0-3")["items"]
    assert all(len(item["k"]) == 10 for item in items)  # all rewards, though not all texts
    with_texts = iteration["texts"]
    assert 0 < len(with_texts) < 500
    swings = [max(map(abs, item["a"])) for item in items]
    assert min(swings[m] for m in with_texts) >= max(
        s for m, s in enumerate(swings) if m not in with_texts
    )
    assert any(f"{len(with_texts)} of 500 trajectories fit" in note for note in run["notes"])


def test_iterations_are_spread_and_the_first_newest_and_best_are_there(tmp_path):
    records = {i: [record(PIECES, VALUES, 1.0)] for i in range(1, 101)}
    summary = SUMMARY | {"best_iteration": 62, "iterations": 100}
    folder = write_run(tmp_path / "run", records, iterations=100, summary=summary)
    (run,) = about(render(folder))["runs"]
    numbers = [it["number"] for it in run["iterations"]]
    assert numbers == sorted(set(numbers))
    assert {1, 62, 100} <= set(numbers)
    assert len(numbers) == 24
    assert max(np.diff(numbers)) < 12
    assert run["notes"] == ["24 of the 100 iterations on disk are shown."]


def test_the_command_writes_one_file_and_says_where(tmp_path, capsys):
    folder = write_run(tmp_path / "run", {1: [record(PIECES, VALUES, 1.0)]})
    assert command.main([str(folder), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["report"] == str(folder / "report.html")
    assert result["bytes"] == (folder / "report.html").stat().st_size
    assert result["runs"] == ["vineppo, seed 0"]
    assert command.main([str(folder), f"--out={tmp_path / 'x' / 'page.html'}"]) == 0
    assert (tmp_path / "x" / "page.html").exists()


def test_wrong_usage_of_the_command_is_named(tmp_path, capsys):
    assert command.main([]) == 2
    assert "no run folder" in capsys.readouterr().err
    assert command.main([str(tmp_path)]) == 2
    assert "holds no run" in capsys.readouterr().err
    folder = write_run(tmp_path / "run", {})
    assert command.main([str(folder), f"--out={tmp_path}"]) == 2
    assert "a folder: give the name of a file" in capsys.readouterr().err


def test_a_report_that_fails_is_a_line_and_no_error(tmp_path, monkeypatch, capsys):
    folder = write_run(tmp_path / "run", {})
    monkeypatch.setattr(page, "read_runs", lambda folders: 1 / 0)
    page.try_to_write_page([folder], folder / page.FILE)
    message = capsys.readouterr().err
    assert "ZeroDivisionError" in message
    assert "python -m experiments.report" in message
    assert not (folder / page.FILE).exists()


def test_equal_runs_give_equal_pages(tmp_path):
    folder = write_run(tmp_path / "run", {1: [record(PIECES, VALUES, 1.0)]}, summary=SUMMARY)
    assert render(folder) == render(folder)


def test_a_stranger_s_record_does_not_end_the_page(tmp_path):
    folder = write_run(tmp_path / "run", {1: [record(PIECES, VALUES, 1.0)]})
    RolloutLog(folder).write(2, [{"problem": "a"}])
    described = about(render(folder))["runs"][0]
    assert [it["number"] for it in described["iterations"]] == [1]
    assert any("iteration 2" in note for note in described["notes"])

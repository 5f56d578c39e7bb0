"""The command on small runs: what it writes, resuming, wrong usage."""

import contextlib
import json
from pathlib import Path

import numpy as np
import pytest

from experiments import analyze, configs
from tests.e2e import runs
from vinejax import analysis
from vinejax.analysis import actions, gradients, values
from vinejax.analysis import run as analysis_run
from vinejax.config import UserError
from vinejax.report import write_json
from vinejax.train import folder

FLAGS = ("--states=8", "--rollouts=8", "--actions=4", "--gradients=4")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run of PPO with checkpoints 2 and 4."""
    out = tmp_path_factory.mktemp("analyze") / "run"
    runs.train(*runs.flags(out, algorithm="ppo"))
    return out


@pytest.mark.slow
def test_the_command_analyses_all_checkpoints_and_goes_on(trained, tmp_path, capsys, monkeypatch):
    before, out = runs.contents(trained), tmp_path / "out"
    sampled, original = [], values.sample

    def sample(policy, *args):
        sampled.append(policy.iteration)
        if len(sampled) == 3:
            raise KeyboardInterrupt
        return original(policy, *args)

    monkeypatch.setattr(values, "sample", sample)
    arguments = [f"--run={trained}", f"--out={out}", *FLAGS, "--json"]
    with runs.one_device():
        assert analyze.main(arguments) == 1  # killed at the third checkpoint
        assert sampled == [0, 2, 4]
        capsys.readouterr()
        first = runs.contents(out)
        assert analyze.main(arguments) == 0
        assert sampled == [0, 2, 4, 4]
        result = json.loads(capsys.readouterr().out)
        assert analyze.main(arguments) == 0
    assert sampled == [0, 2, 4, 4]  # nothing was made again
    again = json.loads(capsys.readouterr().out)
    assert again == result
    assert runs.contents(out).items() >= first.items()
    assert runs.contents(trained) == before
    assert [at["iteration"] for at in result["values"]] == [0, 2, 4]
    names = {"mc_1", "mc_2", "mc_3", "mc_9", "critic", "group_mean", "leave_one_out", "constant"}
    assert all(set(at["predictors"]) == names for at in result["values"])
    assert [at["iteration"] for at in result["actions"]] == [0, 2]
    assert [p["iteration"] for p in result["curves"]["points"]] == [2, 4]
    assert [at["iteration"] for at in result["gradients"]] == [0, 4]
    names = {"vine_1", "vine_2", "vine_3", "vine_9", "critic", "group", "leave_one_out", "constant"}
    assert all(set(at["estimators"]) == names for at in result["gradients"])
    assert json.loads((out / "gradients.json").read_text())["gradients"] == result["gradients"]
    assert json.loads((out / "values.json").read_text())["values"] == result["values"]
    assert (out / "analysis.html").stat().st_size < 3_000_000
    # Another number of rollouts is another question.
    with runs.one_device():
        more = [*arguments[:2], "--states=8", "--rollouts=9", "--actions=0", "--gradients=0"]
        more.append("--checkpoints=newest")
        assert analyze.main(more) == 0
    assert sampled == [0, 2, 4, 4, 4]
    assert "analysis.html shows it" in capsys.readouterr().out


@pytest.mark.slow
def test_the_critic_is_that_of_its_checkpoint(trained, tmp_path):
    with runs.one_device():
        asked = analysis.Asked(states=8, rollouts=2, actions=0, gradients=0)
        analysis.analyse(trained, tmp_path, asked, "0,4", lambda _: None)
    records = [json.loads((tmp_path / f"values-00000{i}.json").read_text()) for i in (0, 4)]
    by_prefix = [
        {
            (p, s): c
            for p, s, c in zip(r["problem"], r["step"], r["predicted"]["critic"], strict=True)
        }
        for r in records
    ]
    assert by_prefix[0] != by_prefix[1]


def holding(tmp_path: Path, *steps: int) -> Path:
    """A run folder whose checkpoints are empty folders."""
    folder.write(tmp_path, configs.get("tiny"))
    for name, step in (("sft", 60), *(("policy", s) for s in steps)):
        place = tmp_path / "checkpoints" / name / str(step)
        place.mkdir(parents=True)
        write_json(place / "files.json", {})
    return tmp_path


def test_an_interrupted_analysis_goes_on(tmp_path, monkeypatch):
    place, out, sampled = holding(tmp_path / "run", 10, 20), tmp_path / "out", []

    def sample(kind, record):
        def made(iteration, *_):
            if len(sampled) == 4:
                sampled.append("cut short")
                raise KeyboardInterrupt
            sampled.append((kind, iteration))
            return record

        return made

    columns = {"problem": ["a", "b"], "step": [0, 1], "truth": [0.0, 1.0]}
    seen = columns | {"predicted": {"mc_1": [0.0, 0.5]}}
    ranked = {"tried": 1, "problem": ["a"], "step": [1], "truth": [[0.0, 1.0, 0.0]]}
    ranked |= {"predicted": {"mc_1": [[0.0, 1.0, 0.0]]}}
    numbers = {"tokens": [10] * 4, "squares": [2.0] * 4, "products": np.full((4, 4), 1.25)}
    noise = {"trajectories": 2, "estimators": {"constant": numbers}}
    monkeypatch.setattr(analysis_run, "prepare", lambda config: (None, None))
    monkeypatch.setattr(analysis_run, "graders_of", lambda config: contextlib.nullcontext())
    monkeypatch.setattr(analysis_run, "_policy", lambda run, setup, start, iteration, *_: iteration)
    monkeypatch.setattr(values, "reached", lambda *_: [])
    monkeypatch.setattr(values, "sample", sample("values", seen))
    monkeypatch.setattr(actions, "sample", sample("actions", ranked))
    monkeypatch.setattr(gradients, "sample", sample("gradients", noise))
    monkeypatch.setattr(analysis_run, "params_of", lambda *_, **__: (None, 0))

    def analyse(**asked):
        return analysis.analyse(place, out, analysis.Asked(**asked), "all", lambda _: None)

    with pytest.raises(KeyboardInterrupt):
        analyse()
    first = [("values", 0), ("actions", 0), ("gradients", 0), ("values", 10)]
    assert sampled == [*first, "cut short"]
    torn = out / ".actions-000010.json.tmp"  # as a kill leaves it
    torn.write_text('{"asked"')
    result = analyse()
    assert sampled[5:] == [("actions", 10), ("values", 20), ("gradients", 20)]
    assert [at["predictors"]["mc_1"]["mae"]["value"] for at in result["values"]] == [0.25] * 3
    assert [at["with_spread"] for at in result["actions"]] == [1, 1]
    assert analyse() == result
    assert [at["estimators"]["constant"]["signal"] for at in result["gradients"]] == [1.0, 1.0]
    assert len(sampled) == 8  # all was read
    analyse(rollouts=9, actions=0)  # another question, but not of the gradients
    assert sampled[8:] == [("values", 0), ("values", 10), ("values", 20)]
    analyse(rollouts=9, actions=0, gradients=16)
    assert sampled[11:] == [("gradients", 0), ("gradients", 20)]
    (place / "config.json").write_bytes((place / "config.json").read_bytes() + b" ")
    analyse(rollouts=9, actions=0, gradients=0)  # another run, for all that is known
    assert sampled[13:] == [("values", 0), ("values", 10), ("values", 20)]
    written = {path.name for path in out.glob("*.json") if "-" not in path.name}
    assert written == {"values.json", "curves.json"}  # no list of what was not asked for


def test_checkpoints_are_chosen(tmp_path):
    place = holding(tmp_path, 20, 10)
    choose = analysis_run.choose
    assert choose(place, configs.get("tiny"), "all") == [0, 10, 20]
    assert choose(place, configs.get("tiny"), "newest") == [20]
    assert choose(place, configs.get("tiny"), "20,0") == [0, 20]
    for wrong in ("5", "10,x", "", "0,10,"):
        with pytest.raises(UserError, match="give all, newest, or some of 0,10,20"):
            choose(place, configs.get("tiny"), wrong)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--run=DIR is missing"),
        (["--run=nowhere"], "nowhere, which holds no run"),
        (["--run=nowhere", "--states=0"], "--states is 0"),
        (["--run=nowhere", "--rollouts=0"], "--rollouts is 0"),
        (["--run=nowhere", "--actions=-1"], "--actions is -1"),
        (["--run=nowhere", "--gradients=3"], "--gradients is 3: give 4 or more, or 0 for none"),
        (["--run=nowhere", "--gradients=-1"], "--gradients is -1"),
        (["--run=nowhere", "--alternatives=1"], "--alternatives is 1"),
        (["--run=nowhere", "--rollout=3"], "did you mean --rollouts"),
    ],
)
def test_wrong_usage_is_refused(flags, message, capsys):
    assert analyze.main(flags) == 2
    assert message in capsys.readouterr().err


def test_bad_places_are_refused_before_anything_is_written(tmp_path, capsys):
    place = holding(tmp_path / "run", 10)
    before = runs.contents(tmp_path)
    assert analyze.main([f"--run={place}", "--checkpoints=7"]) == 2
    assert "no checkpoint '7'" in capsys.readouterr().err
    assert analyze.main([f"--run={place}", f"--out={place / 'config.json'}"]) == 2
    assert "config.json is a file: give another folder" in capsys.readouterr().err
    folder.write(tmp_path / "young", configs.get("tiny"))
    assert analyze.main([f"--run={tmp_path / 'young'}"]) == 2
    assert "no checkpoint yet" in capsys.readouterr().err
    (tmp_path / "young" / "config.json").unlink()
    assert {p: c for p, c in runs.contents(tmp_path).items() if p.startswith("run")} == before

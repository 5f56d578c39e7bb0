"""Files and displays of a run: cut back on resume, read by others, safe to be killed in."""

import gzip
import io
import itertools
import json
import math
import re
import socket
import struct
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

from vinejax import files, report
from vinejax.config import UserError
from vinejax.report import MetricsLog, Progress, RolloutLog, read_metrics, read_rollouts
from vinejax.report.rollouts import iterations


def points(folder):
    """(step, tag, value) of all event files, as a reader of TensorBoard's format sees them."""
    found = []
    for path in sorted(folder.glob("events.*")):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])  # then 4 bytes checksum, record, checksum
            event = Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]
            found += [(event.step, v.tag, v.simple_value) for v in event.summary.value]
    return found


def without_time(lines):
    return [
        {key: value for key, value in line.items() if not key.startswith(("time/", "machine/"))}
        for line in lines
    ]


def test_metrics_are_read_back_bit_for_bit(tmp_path):
    third = np.float32(1) / np.float32(3)
    with MetricsLog(tmp_path, 0) as log:
        log.write({"iteration": 1, "reward": 0.1 + 0.2, "kl": third, "x": jnp.float32(2.5)})
        log.write({"iteration": 2, "reward": math.nan, "kl": math.inf, "note": "warm"})
    first, second = without_time(read_metrics(tmp_path))
    assert first == {"iteration": 1, "reward": 0.1 + 0.2, "kl": float(third), "x": 2.5}
    assert second == {"iteration": 2, "reward": None, "kl": None, "note": "warm"}


def test_every_line_is_on_disk_when_write_returns(tmp_path):
    log = MetricsLog(tmp_path, 0)
    log.write({"iteration": 1, "reward": 0.5})
    assert [line["iteration"] for line in read_metrics(tmp_path)] == [1]
    assert (1, "reward", 0.5) in points(tmp_path)
    log.close()


def test_resuming_cuts_metrics_and_tensorboard_back_to_the_restored_iteration(tmp_path):
    with MetricsLog(tmp_path, 0) as log:
        for i in range(1, 6):
            log.write({"iteration": i, "reward": i / 8, "pass@1": 0.25})
    (tmp_path / "metrics.jsonl").open("ab").write(b'{"iteration": 6, "rew')
    with MetricsLog(tmp_path, 3) as log:
        assert [line["iteration"] for line in read_metrics(tmp_path)] == [1, 2, 3]
        assert [step for step, tag, _ in points(tmp_path) if tag == "reward"] == [1, 2, 3]
        for i in range(4, 6):
            log.write({"iteration": i, "reward": i / 8, "pass@1": 0.25})
    expected = [
        (i, tag, v) for i in range(1, 6) for tag, v in (("reward", i / 8), ("pass@1", 0.25))
    ]
    assert points(tmp_path) == expected
    assert [line["reward"] for line in read_metrics(tmp_path)] == [i / 8 for i in range(1, 6)]


def test_opening_at_the_start_forgets_everything(tmp_path):
    with MetricsLog(tmp_path, 0) as log:
        log.write({"iteration": 1, "reward": 0.5})
    with MetricsLog(tmp_path, 0):
        assert read_metrics(tmp_path) == []
        assert points(tmp_path) == []


def test_a_complete_last_line_without_its_newline_stays(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 1}\n{"iteration": 2}')
    with MetricsLog(tmp_path, 2) as log:
        log.write({"iteration": 3})
    assert [line["iteration"] for line in read_metrics(tmp_path)] == [1, 2, 3]


def test_broken_metrics_are_refused_with_the_line_number(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 1}\n{"iter\n{"iteration": 3}\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl:2 is no line"):
        read_metrics(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 1}\n{"iteration": 1}\n')
    with pytest.raises(UserError, match=r":2 has iteration 1 after 1"):
        read_metrics(tmp_path)


def test_an_iteration_is_written_once(tmp_path):
    with MetricsLog(tmp_path, 4) as log:
        log.write({"iteration": 5})
        with pytest.raises(ValueError, match="iteration 5 comes after iteration 5"):
            log.write({"iteration": 5})


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_plain_progress_is_one_line_an_iteration_without_control_characters():
    stream, now = io.StringIO(), iter([0.0, 0.0, 5.0, 25.0, 30.0, 35.0])
    with Progress(4, stream, clock=lambda: next(now)) as progress:
        progress.supervised(10, 20, 1.25)
        progress.phase("values")
        progress.iteration(
            1, {"reward": 0.5, "validation/pass_at_1": 0.25, "time/tokens_per_second": 1234.5}
        )
        progress.iteration(2, {"reward": jnp.float32(0.75)})
        progress.note("sample: \x1b[31mred [bold]\r\x07")
        progress.iteration(3, {"reward": math.nan})
    assert stream.getvalue().splitlines() == [
        "SFT step 10/20  loss 1.2500",
        # 20 seconds since the SFT report, three to go.
        "iteration 1/4  reward 0.500  validation pass@1 25.0 %  1,234 tokens/s",
        # The first iteration compiled: from now on the mean is over the later ones, 5 seconds each.
        "iteration 2/4  reward 0.750  validation pass@1 25.0 %  0:10 left",
        r"sample: \x1b[31mred [bold]\r\x07",
        "iteration 3/4  reward nan  validation pass@1 25.0 %  0:05 left",
    ]


def test_terminal_progress_shows_phase_numbers_and_notes(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    stream = Terminal()
    with Progress(4, stream, start_iteration=1) as progress:
        progress.phase("values")
        progress.iteration(2, {"reward": 0.5})
        progress.note("[red]as it is[/red]")
        progress.supervised(1, 2, 0.5)
        progress.phase("update")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert "update" in shown
    assert "2/4" in shown
    assert "loss 0.5" in shown
    assert "[red]as it is[/red]" in shown
    assert stream.getvalue().rstrip().endswith("\x1b[?25h")  # the cursor is back


@pytest.mark.parametrize(("columns", "speed"), [("80", False), ("96", True), ("120", True)])
def test_a_narrow_terminal_shows_the_time_left_and_cuts_nothing_off(monkeypatch, columns, speed):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", columns)
    stream, now = Terminal(), itertools.count(0.0, 5.0)
    with Progress(50, stream, clock=lambda: next(now)) as progress:
        progress.phase("trajectories")
        for i in (11, 12):
            numbers = {"reward": 0.5, "validation/pass_at_1": 0.25}
            progress.iteration(i, numbers | {"time/tokens_per_second": 23456.7})
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue()).splitlines()[-1]
    assert "…" not in last
    assert all(f in last for f in ("trajectories", "12/50", "reward 0.500", "25.0 %", " left"))
    assert ("tokens/s" in last) == speed


def test_terminal_progress_leaves_standard_output_alone(monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm")
    with Progress(1, Terminal()):
        print('{"result": 1}')
    assert capsys.readouterr().out == '{"result": 1}\n'


def test_an_encoding_without_the_character_does_not_end_the_run():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    Progress(1, stream).note("π")
    assert raw.getvalue() == b"?\n"


SUMMARY = {
    "algorithm": "vineppo", "seed": 3, "sft_pass_at_1": 0.25, "sft_interval": (0.2, 0.3),
    "final_pass_at_1": 0.5, "final_interval": (0.45, 0.55), "best_pass_at_1": 0.51,
    "best_interval": (0.46, 0.56), "best_iteration": 30, "problems": 1000, "samples": 16,
    "iterations": 40, "seconds": 3723.4, "tokens_sampled": 12345678, "tokens_trained": 99,
}  # fmt: skip


def test_summary_table_has_intervals_time_and_tokens_as_plain_text():
    stream = io.StringIO()
    report.print_summary(SUMMARY, stream)
    text = re.sub(" +", " ", stream.getvalue())
    for part in ("vineppo, seed 3", "after SFT 25.0 % (20.0 to 30.0)", "end 50.0 % (45.0 to 55.0)",
                 "best iteration 51.0 %", "1:02:03", "12,345,678"):  # fmt: skip
        assert part in text
    assert "\x1b" not in text
    assert text.isascii()


def test_a_summary_without_sft_shows_what_it_has():
    stream = io.StringIO()
    report.print_summary({"final_pass_at_1": 0.5, "sft_pass_at_1": None}, stream)
    assert "50.0 %" in stream.getvalue()
    assert "SFT" not in stream.getvalue()


def test_summary_is_plain_json(tmp_path):
    report.write_summary(tmp_path, {**SUMMARY, "best_pass_at_1": np.float32(math.nan)})
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["best_pass_at_1"] is None
    assert summary["final_interval"] == [0.45, 0.55]
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    files.write_json(path, {"a": 1})

    def killed(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        files.write_json(path, {"a": 2})
    monkeypatch.undo()
    assert json.loads(path.read_text()) == {"a": 1}
    with pytest.raises(TypeError, match="object"):
        files.write_json(path, {"a": object()})
    files.write_json(path, {"a": 3})
    assert json.loads(path.read_text()) == {"a": 3}
    assert len(list(tmp_path.iterdir())) == 1


def test_environment_names_versions_flags_and_devices_but_no_host(monkeypatch):
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", f"{socket.gethostname()}:1234")
    monkeypatch.setenv("JAX_TRACEBACK_FILTERING", "off")
    found = report.environment()
    assert found["packages"]["jax"]
    assert found["flags"]["JAX_TRACEBACK_FILTERING"] == "off"
    assert "JAX_COORDINATOR_ADDRESS" not in found["flags"]
    assert found["devices"]["count"] >= 1
    assert found["git"] is None or set(found["git"]) == {"commit", "dirty"}
    json.dumps(found)


def test_environment_without_git_is_no_failure(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert report.environment()["git"] is None


def test_rollouts_are_compressed_json_lines(tmp_path):
    log = RolloutLog(tmp_path)
    records = [{"tokens": np.arange(3), "value": math.nan, "text": "a\nπ \ud800"}, {"tokens": []}]
    path = log.write(12, records)
    assert path == tmp_path / "rollouts" / "000012.jsonl.gz"
    first = path.read_bytes()
    assert read_rollouts(tmp_path, 12) == [
        {"tokens": [0, 1, 2], "value": None, "text": "a\nπ \ud800"},
        {"tokens": []},
    ]
    assert gzip.decompress(first).count(b"\n") == 2
    assert log.write(12, records).read_bytes() == first  # equal runs leave equal files


def test_rollouts_after_the_restored_iteration_are_removed(tmp_path):
    log = RolloutLog(tmp_path)
    for i in (1, 2, 3, 1000000):
        log.write(i, [])
    log.delete_after(2)
    assert sorted(path.name for path in log.folder.iterdir()) == [
        "000001.jsonl.gz",
        "000002.jsonl.gz",
    ]
    with pytest.raises(UserError, match="iteration 3"):
        read_rollouts(tmp_path, 3)
    (log.folder / "000002.jsonl.gz").write_bytes(b"\x1f\x8b\x08")
    with pytest.raises(UserError, match="damaged"):
        read_rollouts(tmp_path, 2)


def test_the_newest_iterations_rollouts_are_kept(tmp_path):
    log = RolloutLog(tmp_path)
    for i in (8, 9, 10, 11):
        log.write(i, [])
    log.keep(0)
    assert iterations(tmp_path) == [8, 9, 10, 11]
    log.keep(5)
    assert iterations(tmp_path) == [8, 9, 10, 11]
    log.keep(2)
    assert iterations(tmp_path) == [10, 11]


def test_reading_a_run_needs_no_jax():
    code = "import sys, vinejax.report, vinejax.statistics; assert 'jax' not in sys.modules"
    root = Path(__file__).resolve().parents[1]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)

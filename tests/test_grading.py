"""A grader may hang, die or fail: its own answer pays, the others and their order stay."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from vinejax import tasks
from vinejax.config import UserError
from vinejax.grading import Faults, GraderPool, Verdict
from vinejax.journal import Journal
from vinejax.tasks import Problem, Task

ROOT = Path(__file__).resolve().parents[1]
PROBLEM = Problem(id="p", problem="", solution="", answer="yes")


class Misbehaving(Task):
    """Grades by what the response asks for."""

    name = "misbehaving"

    def __init__(self, calls: str | None = None):
        self.calls = calls

    def load(self, split):
        return [PROBLEM]

    def extract_answer(self, response):
        return response

    def grade(self, problem, response):
        if self.calls:
            with open(self.calls, "a") as file:
                file.write(response + "\n")
        return _ACTIONS.get(response, lambda: float(response == problem.answer))()

    def grade_strict(self, problem, response):
        return 0.5


def _hang():
    while True:
        pass


def _hang_and_swallow():
    while True:
        with contextlib.suppress(Exception):
            _hang()


def _fail():
    raise RuntimeError("no such answer")


_ACTIONS = {
    "hang": _hang,
    "swallow": _hang_and_swallow,
    "hang in C": lambda: sum(range(10**14)),
    "sleep": lambda: time.sleep(1000),
    "nap": lambda: time.sleep(1) or 1.0,
    "exit": lambda: os._exit(3),
    "abort": os.abort,
    "fail": _fail,
    "too much": lambda: 2.0,
    "nan": lambda: float("nan"),
    "half": lambda: 0.5,
    "jax": lambda: float("jax" in sys.modules),
}

NAME = f"{__name__}:Misbehaving"
YES = Verdict(1.0)


def pool(workers=1, limit=1.0, **options):
    return GraderPool(NAME, options.pop("options", {}), workers, limit, **options)


def items(*responses):
    return [(PROBLEM, response) for response in responses]


@pytest.fixture(scope="module")
def shared_pool():
    with pool(workers=2, limit=0.5) as graders:
        yield graders


def test_verdicts_keep_the_order_of_their_items(shared_pool):
    responses = [f"{number}" if number % 3 else "yes" for number in range(3000)]
    verdicts = shared_pool.grade(items(*responses))
    assert verdicts == [YES if response == "yes" else Verdict(0.0) for response in responses]


def test_a_hang_costs_its_own_answer_only(shared_pool):
    verdicts = shared_pool.grade(items("yes", "hang", "half", "swallow", "yes"))
    assert verdicts == [YES, (0.0, "timeout"), (0.5, ""), (0.0, "timeout"), YES]


def test_a_hang_in_c_is_killed_by_cpu_time(shared_pool):
    started = time.monotonic()
    verdicts = shared_pool.grade(items("yes", "hang in C", "half"))
    assert verdicts == [YES, (0.0, "timeout"), (0.5, "")]
    assert time.monotonic() - started < 60


def test_a_crash_costs_its_own_answer_only(shared_pool):
    responses = [*(["yes"] * 5), "exit", "half", "abort", *map(str, range(40))]
    verdicts = shared_pool.grade(items(*responses))
    assert verdicts[:8] == [*[YES] * 5, (0.0, "crash"), (0.5, ""), (0.0, "crash")]
    assert set(verdicts[8:]) == {Verdict(0.0)}


def test_an_answer_that_sleeps_is_ended_by_the_wall_clock():
    with pool(limit=0.1) as graders:
        graders._wall = 1.0
        assert graders.grade(items("yes", "sleep", "half")) == [YES, (0.0, "timeout"), (0.5, "")]


@pytest.mark.parametrize("workers", [0, 1])
def test_errors_and_impossible_grades_are_noted(workers):
    with pool(workers) as graders:
        verdicts = graders.grade(items("fail", "too much", "nan", "yes"))
    assert verdicts[0] == (0.0, "error: RuntimeError: no such answer")
    assert [v.grade for v in verdicts] == [0.0, 0.0, 0.0, 1.0]
    assert "outside [0, 1]" in verdicts[1].note
    assert "outside [0, 1]" in verdicts[2].note


def test_what_graders_failed_on_is_counted_by_iteration_and_phase(tmp_path):
    """Each item counts, equal ones too, and those whose verdict the journal has."""
    with Journal.open(tmp_path / "verdicts.jsonl") as journal, pool(0, journal=journal) as graders:
        first = graders.submit(items("yes", "fail", "fail", "no"), 3, "trajectories")
        assert graders.faults(3, ["trajectories"]) == Faults()  # nobody has read the results
        for _ in range(2):
            first.result()
        graders.grade(items("too much"), 3, "values")
        graders.grade(items("fail"), 3, "validation")
        found = graders.faults(3, ["trajectories", "values"])
        assert found == Faults(5, 3, "error: RuntimeError: no such answer")
        assert found.share == 0.6
        graders.grade(items("yes"), 4, "trajectories")
        assert graders.faults(4, ["trajectories", "values"]) == Faults(1, 0, "")
    with Journal.open(tmp_path / "verdicts.jsonl") as journal, pool(0, journal=journal) as graders:
        graders.grade(items("yes", "fail", "fail", "no"), 3, "trajectories")
        assert graders.faults(3, ["trajectories"]).failed == 2


def test_workers_do_not_import_jax(shared_pool):
    assert shared_pool.grade(items("jax")) == [Verdict(0.0)]


@pytest.mark.parametrize("workers", [0, 1])
def test_equal_items_are_graded_once(workers, tmp_path):
    calls = tmp_path / "calls"
    with pool(workers, options={"calls": str(calls)}) as graders:
        assert graders.grade(items("yes", "no", "yes", "yes")) == [YES, (0.0, ""), YES, YES]
    assert sorted(calls.read_text().split()) == ["no", "yes"]


def test_same_response_to_other_problems_is_another_item():
    other = Problem(id="q", problem="", solution="", answer="no")
    with pool(workers=0) as graders:
        assert graders.grade([(PROBLEM, "yes"), (other, "yes")]) == [YES, Verdict(0.0)]


def test_strict_grades_are_kept_apart():
    with pool(workers=0) as graders:
        assert graders.grade(items("yes"), strict=True) == [Verdict(0.5)]
        assert graders.grade(items("yes")) == [YES]


def test_grading_works_from_threads_and_overlaps(shared_pool):
    results = {}

    def work(name):
        gradings = [shared_pool.submit(items("yes", f"{name}", "half")) for _ in range(5)]
        results[name] = [grading.result() for grading in gradings]

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(rows == [[YES, (0.0, ""), (0.5, "")]] * 5 for rows in results.values())
    assert len(results) == 4


def test_nothing_to_grade(shared_pool):
    assert shared_pool.grade([]) == []


def test_unicode_that_is_no_utf8_is_graded(shared_pool):
    assert shared_pool.grade(items("\ud800", "\0", "🙂")) == [Verdict(0.0)] * 3


def test_journal_is_written_before_verdicts_are_returned(tmp_path):
    path = tmp_path / "verdicts.jsonl"
    with Journal.open(path) as journal, pool(journal=journal) as graders:
        grading = graders.submit(items("yes", "hang", "yes"), iteration=3, phase="values")
        verdicts = grading.result()
        line = json.loads(path.read_text())
    assert (line["iteration"], line["phase"]) == (3, "values")
    assert sorted(line["verdicts"].values()) == [[0.0, "timeout"], [1.0, ""]]
    assert verdicts == [YES, (0.0, "timeout"), YES]
    assert grading.result() == verdicts
    assert len(path.read_text().splitlines()) == 1


def test_resumed_run_takes_verdicts_from_the_journal(tmp_path):
    path, calls = tmp_path / "verdicts.jsonl", tmp_path / "calls"
    with Journal.open(path) as journal, pool(journal=journal) as graders:
        graders.grade(items("hang"), iteration=4)
        graders.grade(items("yes", "hang"), iteration=5)
        graders.grade(items("fail"), iteration=6)
    with path.open("a") as file:
        file.write('{"iteration": 6, "phase": "", "verd')  # killed while writing
    with Journal.open(path, keep_from_iteration=5) as journal:
        assert journal.verdicts(4) == {}
        with pool(0, journal=journal, options={"calls": str(calls)}) as graders:
            # "hang" would hang: the journal remembers the time-out.
            verdicts = graders.grade(items("hang", "yes", "half"), iteration=5)
            assert verdicts == [(0.0, "timeout"), YES, (0.5, "")]
            assert graders.grade(items("fail"), iteration=6)[0].note.startswith("error")
            assert graders.grade(items("yes"), iteration=7) == [YES]
    assert calls.read_text().split() == ["half", "yes"]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [4, 5, 6, 5, 7]


def test_ledger_and_gsm8k_are_graded_in_workers():
    with GraderPool("ledger", {"length": 2, "sft_size": 9, "train_size": 9}, 1) as graders:
        right = Problem(id="x", problem="9-7-1", solution="", answer="21")
        assert graders.grade([(right, "9-7=2\n2-1=1\n#### 21")]) == [YES]
    with GraderPool("gsm8k", {}, 1) as graders:
        assert graders.grade(items("#### yes", "yes")) == [YES, Verdict(0.0)]
        assert graders.grade(items("#### yes"), strict=True) == [Verdict(0.0)]


SCRIPT = textwrap.dedent(
    """
    import json, sys
    sys.modules["jax"] = sys  # what a main script that uses JAX looks like
    print("imported", __name__, flush=True)
    from vinejax.grading import GraderPool
    from vinejax.tasks import Problem

    if __name__ == "__main__":
        with GraderPool("gsm8k", {}, 1) as graders:
            problem = Problem(id="x", problem="", solution="", answer="5")
            print(graders.grade([(problem, "#### 5")]))
            if len(sys.argv) > 1:
                pool = graders._pool
                print(*(w.pid for w in pool._pool_manager.worker_manager.workers.values()))
                sys.stdout.flush()
                import time
                time.sleep(60)
    """
)


def test_workers_do_not_run_the_main_script(tmp_path):
    (tmp_path / "main.py").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "main.py")],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=True,
    )
    assert done.stdout.count("imported") == 1
    assert "grade=1.0" in done.stdout
    assert done.stderr == ""


STOPPED = textwrap.dedent(
    """
    import os, signal, time
    from tests.test_grading import YES, items, pool

    if __name__ == "__main__":
        heard = []
        signal.signal(signal.SIGTERM, lambda *_: heard.append(1))
        with pool(limit=10) as graders:
            assert graders.grade(items("yes")) == [YES]  # a worker is there
            on_its_way = graders.submit(items("nap"))
            time.sleep(0.3)
            os.killpg(0, signal.SIGTERM)
            print(*(verdict for job in (
                on_its_way, graders.submit(items("exit", "half"))  # a new worker is needed
            ) for verdict in job.result()), len(heard))
    """
)


@pytest.mark.skipif(sys.platform == "win32", reason="process groups")
def test_a_stop_request_to_all_processes_costs_no_verdict(tmp_path):
    """As `timeout` and some schedulers send it, while an answer is being graded."""
    (tmp_path / "main.py").write_text(STOPPED)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "main.py")],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=120,
        check=False,
        start_new_session=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == " ".join(map(str, (YES, Verdict(0.0, "crash"), Verdict(0.5), 1)))


def is_running(pid: int) -> bool:
    """Whether the process exists and is more than an entry that nobody has collected."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_no_worker_outlives_a_killed_run(tmp_path):
    (tmp_path / "main.py").write_text(SCRIPT)
    run = subprocess.Popen(
        [sys.executable, str(tmp_path / "main.py"), "stay"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    run.stdout.readline()
    run.stdout.readline()
    workers = [int(pid) for pid in run.stdout.readline().split()]
    assert workers
    run.send_signal(signal.SIGKILL)
    run.wait()
    run.stdout.close()
    deadline = time.monotonic() + 30
    while any(is_running(pid) for pid in workers):
        assert time.monotonic() < deadline, "a grading worker outlived its run"
        time.sleep(0.1)


def test_task_that_workers_cannot_import_is_refused_early():
    class Local(Misbehaving):
        pass

    tasks._TASKS["local"] = Local
    try:
        with pytest.raises(UserError, match="importable"):
            GraderPool("local", {}, 1)
        with GraderPool("local", {}, 0) as graders:
            assert graders.grade(items("yes")) == [YES]
    finally:
        del tasks._TASKS["local"]

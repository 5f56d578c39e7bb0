"""A reward that a program decides, here `grep`: the response is its standard input.

    PYTHONPATH=. python -m experiments.run --config=tiny \\
        --config.task.name=examples.program_reward:ByProgram

Grading workers start it, several at a time. What it says:

    exit code 0      right; or, if it printed a number from 0 to 1, worth that much
    exit code 1      wrong
    any other end    it crashed, was killed, or took longer than `timeout`: the response is worth 0,
                     and the reason stands beside its grade in the run's verdicts.jsonl

A response that was graded once is not graded again when a run goes on, so the program should say
the same of the same text each time. It has no network where the system allows to take it away, but
it is no sandbox: a program that executes what a model wrote must bring its own.
"""

import subprocess

from vinejax.tasks import Problem
from vinejax.tasks.ledger import Ledger

WRONG = 1  # exit code


class ByProgram(Ledger):
    """The problems of `ledger`: is one of the lines the answer, as it has to be written?"""

    name = "by_program"
    runs_programs = True  # without it the workers must not start anything
    program = ("grep", "--quiet", "--line-regexp", "--fixed-strings", "--regexp")
    timeout = 5.0  # seconds; below 4 x grading.limit + 10, where the worker itself would be killed

    def grade(self, problem: Problem, response: str) -> float:
        """What is raised here costs this response its grade, and nothing else."""
        command = [*self.program, f"#### {problem.answer}"]
        text = response.encode()
        done = subprocess.run(command, input=text, capture_output=True, timeout=self.timeout)
        if done.returncode == WRONG:
            return 0.0
        done.check_returncode()
        return float(done.stdout or 1)

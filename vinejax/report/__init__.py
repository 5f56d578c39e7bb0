"""What a run leaves on disk, and what it shows while it runs."""

from vinejax.files import write_json
from vinejax.report.costs import costs
from vinejax.report.environment import environment
from vinejax.report.metrics import MetricsLog, read_metrics
from vinejax.report.progress import Progress
from vinejax.report.rollouts import RolloutLog, read_rollouts
from vinejax.report.summary import print_summary, summary_table, write_summary

__all__ = [
    "MetricsLog",
    "Progress",
    "RolloutLog",
    "costs",
    "environment",
    "print_summary",
    "read_metrics",
    "read_rollouts",
    "summary_table",
    "write_json",
    "write_summary",
]

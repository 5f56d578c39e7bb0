"""One HTML page that shows a run, or several beside each other.

python -m experiments.report DIR [DIR ...] [--out=FILE]

The page needs no network and nothing beside it. Runs that are not finished are shown as far as they
are. FILE is DIR/report.html by default, and report.html for several runs.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments import cli
from vinejax.config import ConfigError
from vinejax.report import page


@dataclass(frozen=True)
class ReportFlags:
    """Flags of this command."""

    folders: tyro.conf.Positional[tuple[Path, ...]] = ()  # Run folders.
    out: Path | None = None  # The page; default DIR/report.html, report.html for several runs.
    json: bool = False  # Print what was written as one JSON line, last on standard output.


def run(argv: list[str]) -> None:
    """Parse, read the folders, write the page; see `ReportFlags` for the arguments."""
    flags = cli.parse_flags(argv, ReportFlags(), "python -m experiments.report", __doc__ or "")
    if not flags.folders:
        raise ConfigError("no run folder is given: python -m experiments.report DIR [DIR ...]")
    alone = len(flags.folders) == 1
    out = flags.out or (flags.folders[0] / page.FILE if alone else Path(page.FILE))
    runs = page.write_page(flags.folders, out)
    size = out.stat().st_size
    if flags.json:
        cli.print_json({"report": str(out), "bytes": size, "runs": [run.name for run in runs]})
    else:
        print(f"{out} ({size / 1e6:.1f} MB)")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of `run`."""
    return cli.execute(run, argv)


if __name__ == "__main__":
    sys.exit(main())

"""Write the policy of a run as a Hugging Face folder, which transformers loads.

python -m experiments.export --run=DIR --to=PATH
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments import cli


@dataclass(frozen=True)
class ExportFlags:
    """Flags of this command."""

    run: Path = tyro.MISSING  # Directory of the run.
    to: Path = tyro.MISSING  # Folder to write; an earlier export there is replaced.
    json: bool = False  # Print the result as one JSON line.


def run(argv: list[str]) -> None:
    """Parse, load the run's newest policy, and write it; see `ExportFlags` for the arguments."""
    flags = cli.parse_flags(argv, ExportFlags(), "python -m experiments.export", __doc__ or "")
    cli.use_compile_cache()
    from vinejax import policy, train  # after the cache is set: this import starts JAX

    config, params, tokenizer = train.load_policy(flags.run)
    policy.save_hf(flags.to, config, params, tokenizer)
    if flags.json:
        cli.print_json({"run": str(flags.run), "to": str(flags.to)})
    else:
        print(f"the policy of {flags.run} is in {flags.to}")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of `run`."""
    return cli.execute(run, argv)


if __name__ == "__main__":
    sys.exit(main())

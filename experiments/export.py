"""Write the policy of a run as a Hugging Face folder, which transformers loads.

python -m experiments.export --run=DIR --to=PATH
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments import cli
from vinejax.config import UserError
from vinejax.tokenizer import Tokenizer

SAMPLE = "1+2=3"  # characters that every task's tokenizer has


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
    check(flags.to, tokenizer)
    if flags.json:
        cli.print_json({"run": str(flags.run), "to": str(flags.to)})
    else:
        print(f"the policy of {flags.run} is in {flags.to}")


def check(folder: Path, tokenizer: Tokenizer) -> None:
    """Read the folder back as its users will; UserError where transformers differs from us."""
    from transformers import AutoConfig, AutoTokenizer  # slow to import

    model = AutoConfig.from_pretrained(folder)
    theirs = AutoTokenizer.from_pretrained(folder)
    ours, other = tokenizer.encode(SAMPLE), theirs.encode(SAMPLE, add_special_tokens=False)
    if ours != other:
        raise UserError(
            f"{folder}: transformers reads the tokenizer otherwise ({other} for {SAMPLE!r}, here "
            f"{ours}): export again with another version of transformers"
        )
    if tokenizer.vocab_size > model.vocab_size:
        raise UserError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} ids, the model "
            f"{model.vocab_size} rows: set policy.tokenizer to the model's own"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of `run`."""
    return cli.execute(run, argv)


if __name__ == "__main__":
    sys.exit(main())

"""Write the policy of a run as a Hugging Face folder, which transformers loads.

python -m experiments.export --run=DIR --to=PATH
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from vinejax import policy, train
from vinejax.config import UserError


@dataclass(frozen=True)
class Arguments:
    """Write the policy of a run as a Hugging Face folder."""

    run: Path
    """Directory of the run."""
    to: Path
    """Folder to write; an earlier export there is replaced."""
    json: bool = False
    """Print the result as one JSON line."""


def main(argv: list[str] | None = None) -> int:
    arguments = tyro.cli(Arguments, args=argv, prog="python -m experiments.export")
    try:
        config, params, tokenizer = train.load_policy(arguments.run)
        policy.save_hf(arguments.to, config, params, tokenizer)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps({"run": str(arguments.run), "to": str(arguments.to)}))
    else:
        print(f"the policy of {arguments.run} is in {arguments.to}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Write the policy of a run as a Hugging Face folder, which transformers loads.

python -m experiments.export --run=DIR --to=PATH

Beside weights and tokenizer it has the settings of the run's evaluation (generation_config.json), a
model card (README.md) and the configuration of the run (vinejax_config.json).
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from experiments import cli
from vinejax.config import EvaluationConfig, UserError
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
    export(flags.run, flags.to)
    if flags.json:
        cli.print_json({"run": str(flags.run), "to": str(flags.to)})
    else:
        print(f"the policy of {flags.run} is in {flags.to}")


def export(out: Path, to: Path) -> None:
    """Write the newest policy of the run in `out` to the folder `to`, and read it back.

    Raises UserError where `out` holds no run with a checkpoint, or `to` anything but an export.
    """
    import jax

    from vinejax import policy, tasks, train  # after the cache is set
    from vinejax.report import card
    from vinejax.report.page.runs import read_runs
    from vinejax.train.loop import newest_iteration

    config, iteration = train.read_config(out), newest_iteration(out)
    model, params, tokenizer = train.load_policy(out, iteration)
    exported = card.Exported(
        run=read_runs([out])[0],
        config=config,
        iteration=iteration,
        parameters=sum(leaf.size for leaf in jax.tree.leaves(params)),
        task=tasks.get(config.task.name, **config.task.arguments()),
        tokenizer=tokenizer,
        base=card.base_of(config),
    )
    settings = generation(config.evaluation, tokenizer)
    policy.save_hf(to, model, params, tokenizer, settings, card.files(exported))
    check(to, tokenizer)


def generation(evaluation: EvaluationConfig, tokenizer: Tokenizer) -> dict[str, Any]:
    """Fields of generation_config.json: an evaluation's settings, and the ids that it used.

    A padding token is the model's business: tokenizers that declare none have no id for it.
    """
    found: dict[str, Any] = {"max_new_tokens": evaluation.max_new_tokens, "do_sample": False}
    if evaluation.temperature > 0:
        drawn = {"temperature": evaluation.temperature, "top_p": evaluation.top_p}
        found |= {"do_sample": True, **drawn, "top_k": 0}  # 0: off; transformers' default is 50
    ids = {"bos_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id}
    return found | {name: value for name, value in ids.items() if value is not None}


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

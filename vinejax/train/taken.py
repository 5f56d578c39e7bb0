"""The SFT of another run instead of one's own: how methods come to start from the same bits."""

import shutil
from pathlib import Path

from vinejax.config import Config, UserError, differences
from vinejax.train import candidates, folder

# What the policy after SFT follows from; the second line, where SFT compares on validation.
FIELDS = ("seed", "policy", "task", "sft")
COMPARED = ("evaluation", "grading")


def check(start: Path, config: Config) -> None:
    """Raises UserError unless the run in `start` is over and its SFT is the one of `config`."""
    if not folder.fine_tunes(config):
        raise UserError(
            f"--start is {start}, but this configuration has no SFT that could be taken from "
            "there: leave it out"
        )
    if not (start / "config.json").exists():
        raise UserError(f"--start is {start}, which holds no run: give the folder of one")
    other = folder.read_config(start)
    if folder.finished(start, other) is None:
        raise UserError(f"--start is {start}, whose run is not over: go on with it first")
    groups = FIELDS + COMPARED * candidates.compares(config)
    changed = [
        line
        for line in differences(other, config)
        if line.partition(":")[0].partition(".")[0] in groups
    ]
    if changed:
        listed = "\n  ".join(changed)
        raise UserError(
            f"--start is {start}, whose SFT is another one:\n  {listed}\n"
            "give those values, or leave --start out"
        )


def take(start: Path, out: Path) -> None:
    """Copies the end of the SFT of `start` into the run folder `out`, unless `out` has its own.

    `train.run` finds it there as that of a run which stopped right behind SFT.
    """
    own = out / "checkpoints" / "sft"
    if own.exists():
        return
    aside = own.with_name(".sft.tmp")
    shutil.rmtree(aside, ignore_errors=True)  # of a process that was killed here
    shutil.copytree(start / "checkpoints" / "sft", aside)
    aside.rename(own)
    if (start / candidates.FILE).exists():
        shutil.copy2(start / candidates.FILE, out / candidates.FILE)

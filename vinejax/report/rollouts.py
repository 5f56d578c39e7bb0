"""`rollouts/`: what was sampled in each iteration, as compressed JSON lines."""

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vinejax.config import UserError
from vinejax.files import plain, write_atomic

FOLDER = "rollouts"
_NAME = re.compile(r"(\d{6,})\.jsonl\.gz")


class RolloutLog:
    """Writes `rollouts/000012.jsonl.gz` for iteration 12; equal records give equal bytes."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder) / FOLDER
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, iteration: int, records: Iterable[Mapping[str, Any]]) -> Path:
        """Replace the file of an iteration, atomically; arrays become lists, NaN becomes null."""
        lines = [json.dumps(plain(record), allow_nan=False) + "\n" for record in records]
        path = _path(self.folder, iteration)
        write_atomic(path, gzip.compress("".join(lines).encode(), compresslevel=6, mtime=0))
        return path

    def delete_after(self, iteration: int) -> None:
        """Remove the files of later iterations, which a resumed run writes again."""
        for later in iterations(self.folder.parent):
            if later > iteration:
                _path(self.folder, later).unlink()

    def keep(self, newest: int) -> None:
        """Remove all files but those of the `newest` iterations; 0 keeps all."""
        for iteration in iterations(self.folder.parent)[:-newest] if newest else ():
            _path(self.folder, iteration).unlink()


def iterations(folder: str | Path) -> list[int]:
    """The iterations that the run in `folder` has rollouts of, ascending."""
    names = (_NAME.fullmatch(path.name) for path in (Path(folder) / FOLDER).glob("*"))
    return sorted(int(name[1]) for name in names if name)


def read_rollouts(folder: str | Path, iteration: int) -> list[dict[str, Any]]:
    """The records of one iteration of the run in `folder`; UserError when it has none."""
    path = _path(Path(folder) / FOLDER, iteration)
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]
    except FileNotFoundError:
        raise UserError(
            f"{path} does not exist: iteration {iteration} is not finished or was not kept"
        ) from None
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise UserError(f"{path} is damaged ({error}); remove it") from error


def _path(folder: Path, iteration: int) -> Path:
    return folder / f"{iteration:06d}.jsonl.gz"

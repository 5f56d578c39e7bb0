"""The verdicts of a run, on disk before use: a resumed run repeats them, time-outs too."""

import json
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from vinejax.config import UserError
from vinejax.files import naming

Entry = tuple[float, str]


class Journal:
    """`verdicts.jsonl`: lines {"iteration": i, "phase": "...", "verdicts": {hash: [grade, note]}}.

    Only iterations that have not been forgotten are in memory. May be used by several threads.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._verdicts: dict[int, dict[str, Entry]] = {}
        self._lock = threading.Lock()
        self._file = self.path.open("a", encoding="utf-8")

    @classmethod
    def open(
        cls, path: str | Path, keep_from_iteration: int = 0, others: Sequence[Path] = ()
    ) -> "Journal":
        """Reads the verdicts of iterations >= `keep_from_iteration`; goes on behind the last line.

        `others` are journals that are read only: what other processes of the run have written.

        A last line that was cut off by a crash is removed from the file; a broken line elsewhere is
        a UserError with its number.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        kept: dict[int, dict[str, Entry]] = {}
        if path.exists():
            cut_torn_line(path)
        for source in sorted({*others, path}):
            if not source.exists():
                continue
            with source.open(encoding="utf-8") as lines:
                for number, line in enumerate(lines, start=1):
                    iteration, verdicts = _read(line, f"{source}:{number}")
                    if iteration >= keep_from_iteration:
                        kept[iteration] = verdicts | kept.get(iteration, {})
        journal = cls(path)
        journal._verdicts = kept
        return journal

    def verdicts(self, iteration: int) -> dict[str, Entry]:
        """A copy of what is known for an iteration, by hash."""
        with self._lock:
            return dict(self._verdicts.get(iteration, {}))

    def append(self, iteration: int, phase: str, verdicts: Mapping[str, Entry]) -> None:
        """Writes verdicts to the operating system (they outlive the process) and keeps them.

        The first verdict on an answer stands: one that the iteration has already stays as it is.
        """
        with self._lock:
            known = self._verdicts.setdefault(iteration, {})
            new = {
                key: (grade, note) for key, (grade, note) in verdicts.items() if key not in known
            }
            if new:
                entry = {"iteration": iteration, "phase": phase, "verdicts": new}
                with naming(self.path):
                    self._file.write(json.dumps(entry, separators=(",", ":")) + "\n")
                    self._file.flush()
                known |= new

    def forget(self, before: int) -> None:
        """Drops iterations < `before` from memory; the file keeps them."""
        with self._lock:
            for iteration in [i for i in self._verdicts if i < before]:
                del self._verdicts[iteration]

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def cut_torn_line(path: Path) -> None:
    """Shortens the file to the end of its last complete line."""
    with path.open("rb+") as file:
        size = end = file.seek(0, os.SEEK_END)
        while end > 0:
            begin = max(0, end - 65536)
            file.seek(begin)
            newline = file.read(end - begin).rfind(b"\n")
            if newline >= 0:
                end = begin + newline + 1
                break
            end = begin
        if end < size:
            file.truncate(end)


def _read(line: str, where: str) -> tuple[int, dict[str, Entry]]:
    try:
        entry = json.loads(line)
        found = entry["verdicts"].items()
        return int(entry["iteration"]), {key: (float(g), str(note)) for key, (g, note) in found}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{where}: broken journal line ({error}); remove the line") from error

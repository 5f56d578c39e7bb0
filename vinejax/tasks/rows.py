"""Rows of a data set, from local JSON lines or the Hugging Face hub, with their place."""

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vinejax.config import UserError


@dataclass(frozen=True)
class Row:
    """where: "file:line" (from 1) or "hub id part:row" (from 0)."""

    where: str
    fields: Mapping[str, Any]

    def text(self, field: str) -> str:
        """A field that must be a string; UserError if it is missing or something else."""
        value = self.fields.get(field)
        if not isinstance(value, str):
            found = "is missing" if field not in self.fields else f"is {value!r}, not a text"
            raise UserError(f"{self.where}: field {field!r} {found}; correct or remove the line")
        return value


def local_rows(folder: Path, file: str) -> list[Row]:
    """The rows of `folder/file` or `folder/file.gz`: JSON objects in UTF-8, one a line.

    Skips blank lines and a byte order mark; lines may end as on Windows.

    Raises UserError for a missing folder or file, a broken line (its number) or an empty file.
    """
    folder = folder.expanduser()
    if not folder.is_dir():
        raise UserError(f"task.path: there is no folder {str(folder)!r}; it must hold {file}[.gz]")
    found = [path for path in (folder / file, folder / f"{file}.gz") if path.is_file()]
    if not found:
        raise UserError(f"task.path: {folder} holds neither {file} nor {file}.gz; put one there")
    return rows_of(found[0])


def rows_of(path: Path) -> list[Row]:
    """The rows of one file, as `local_rows` reads it. Raises UserError."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({error}); fetch the file again") from error
    rows = []
    # Not splitlines(): JSON strings may hold U+2028 and the like.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            rows.append(_row(f"{path}:{number}", line))
    if not rows:
        raise UserError(f"{path} holds no problem; fetch the file again")
    return rows


def _row(where: str, line: str) -> Row:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{where}: broken line, not JSON ({error}); correct or remove the line"
        ) from error
    if not isinstance(value, dict):
        raise UserError(f"{where}: broken line, not a JSON object; correct or remove the line")
    return Row(where, value)


def hub_rows(name: str, configuration: str, part: str, file: str) -> list[Row]:
    """The rows of one part of a data set on the hub, through `datasets`.

    Raises UserError, which says where local files would go, if it cannot be had.
    """
    from datasets import load_dataset

    try:
        rows: Any = load_dataset(name, configuration, split=part)
    except Exception as error:
        raise UserError(
            f"data set {name!r} ({configuration}, {part}) could not be fetched from the hub "
            f"({type(error).__name__}: {str(error)[:200]}); without the network put {file} into a "
            "folder and set task.path to it"
        ) from error
    if not len(rows):
        raise UserError(f"data set {name!r} ({configuration}, {part}) on the hub is empty")
    return [Row(f"{name} {part}:{index}", dict(row)) for index, row in enumerate(rows)]

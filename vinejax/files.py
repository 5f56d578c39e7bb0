"""Files that are whole or absent: written aside, synced to disk, then renamed into place."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def write_atomic(path: str | Path, data: bytes) -> None:
    """Replace a file by `data`, so that a crash at any moment leaves the old or the new content.

    One writer at a time: the temporary file `.NAME.tmp` beside it is the next writer's to reuse.
    """
    path = Path(path)
    aside = path.with_name(f".{path.name}.tmp")
    with open(aside, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the rename itself
    finally:
        os.close(folder)


def write_json(path: str | Path, value: Any) -> None:
    """Replace a file by `value` as indented JSON (see `plain`), atomically."""
    text = json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=False)
    write_atomic(path, (text + "\n").encode("utf-8", "backslashreplace"))


def plain(value: Any) -> Any:
    """The JSON form of records: arrays become numbers and lists, NaN and infinity become null.

    Floats keep their value to the last bit. Raises TypeError for what JSON has no form for.
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "__array__"):
        return plain(np.asarray(value).tolist())
    raise TypeError(f"{value!r} is {type(value).__name__}, which has no JSON form")

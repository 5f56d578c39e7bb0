"""Files that are whole or absent: written aside, synced to disk, then renamed into place."""

import contextlib
import errno
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

FULL = (errno.ENOSPC, errno.EDQUOT)
REFUSED = (*FULL, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)


def refusal(error: BaseException) -> tuple[int, str | None] | None:
    """(error number, file where it is known) if an error comes from a disk that takes no data.

    Looks at what an error was raised from, too, and for the system's words in texts: libraries wrap
    what the system told them.
    """
    seen: list[BaseException] = []
    found: tuple[int, str | None] | None = None
    at: BaseException | None = error
    while at is not None and at not in seen:
        seen.append(at)
        for number in REFUSED:
            if isinstance(at, OSError):
                if at.errno == number and at.filename is not None:
                    return number, os.fsdecode(at.filename)
                refused = at.errno == number
            else:
                refused = os.strerror(number) in str(at)
            if refused and found is None:
                found = number, None
        at = at.__cause__ or at.__context__
    return found


@contextlib.contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Gives errors of writing the file's name, which the system adds to those of opening only."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def write_atomic(path: str | Path, data: bytes) -> None:
    """Replace a file by `data`, so that a crash at any moment leaves the old or the new content.

    One writer at a time: the temporary file `.NAME.tmp` beside it is the next writer's to reuse.
    """
    path = Path(path)
    aside = path.with_name(f".{path.name}.tmp")
    with naming(path), open(aside, "wb") as file:
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

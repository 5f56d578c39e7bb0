"""Where the public data sets and tokenizers are that some tests need and the repository omits."""

import os
from pathlib import Path

REASON = "needs data that the repository omits: set VINEJAX_DATA (see BUILD.md)"


def shared_data() -> Path | None:
    """The folder with gsm8k_train.jsonl.gz, tokenizers/ and so on; None if it is not here.

    $VINEJAX_DATA names it or its parent; without it, ../shared/data beside the repository.
    """
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    root = Path(os.environ.get("VINEJAX_DATA") or beside)
    for folder in (root / "data", root):
        if (folder / "gsm8k_test.jsonl").is_file():
            return folder
    return None

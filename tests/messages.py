"""All messages of errors that a user can meet, read from the source, as docs/errors.md lists them.

`python -m tests.messages` writes the list in docs/errors.md anew.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "errors.md"
BEGIN = "<!-- from here on written by `python -m tests.messages` -->\n"
ERRORS = ("UserError", "ConfigError", "CheckpointError", "RunError", "StorageError")
GAP = "…"  # what a message fills in

# Where a message appears, by the place of its code; the first that fits.
PLACES = (
    ("Command line", ("experiments/",)),
    ("Configuration", ("vinejax/config/",)),
    ("Data and grading", ("vinejax/tasks/", "vinejax/grading/", "vinejax/journal.py")),
    ("Model and tokenizer", ("vinejax/policy/", "vinejax/tokenizer", "vinejax/stop.py")),
    ("Checkpoints", ("vinejax/checkpoint/",)),
    ("Devices, meshes and several processes", ("vinejax/sharding.py", "vinejax/processes.py")),
    (
        "Training",
        tuple(f"vinejax/{p}" for p in ("train/", "update/", "sampler/", "vine/", "rng.py")),
    ),
    ("Compiled programs and plans", ("vinejax/compiled/",)),
    ("Reports and run folders that are read", ("vinejax/report/", "vinejax/files.py")),
    ("Benchmarks", ("benchmarks/",)),
    ("Elsewhere", ("",)),
)


@dataclass(frozen=True)
class Message:
    """One `raise`, with a GAP for everything that is filled in."""

    file: str  # relative to the repository
    line: int
    error: str
    text: str


def messages() -> Iterator[Message]:
    """Those of all files, in order. What only hands on the text of another error is left out."""
    for folder in ("vinejax", "experiments", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                    continue
                if node.func.id in ERRORS and node.args:
                    text = _text(node.args[0])
                    if text.replace(GAP, "").strip():
                        file = str(path.relative_to(ROOT))
                        yield Message(file, node.lineno, node.func.id, text)


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return re.sub(f"{GAP}+", GAP, "".join(map(_text, node.values)))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return GAP


def place(file: str) -> str:
    """The heading that a file's messages stand under."""
    return next(name for name, starts in PLACES if file.startswith(starts))


def listing() -> str:
    """The generated part of the page."""
    found: dict[str, set[str]] = {name: set() for name, _ in PLACES}
    for message in messages():
        found[place(message.file)].add(" ".join(message.text.split()))
    parts = []
    for name, texts in found.items():
        if texts:
            lines = "\n".join(sorted(texts, key=lambda t: (t.strip(GAP + " ").lower(), t)))
            parts.append(f"\n### {name}\n\n```text\n{lines}\n```\n")
    return "".join(parts)


def main() -> None:
    """Writes the page."""
    written = PAGE.read_text(encoding="utf-8").partition(BEGIN)[0]
    PAGE.write_text(written + BEGIN + listing(), encoding="utf-8")


if __name__ == "__main__":
    main()

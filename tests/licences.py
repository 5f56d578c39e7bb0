"""The licences of what vinejax installs, from the packages' own metadata, for docs/licences.md.

`python -m tests.licences` writes the table anew, from the environment that it runs in.
"""

import re
from collections import deque
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "licences.md"
BEGIN = "<!-- from here on written by `python -m tests.licences` -->\n"


def canonical(name: str) -> str:
    """Of several spellings one."""
    return re.sub(r"[-_.]+", "-", name).lower()


def asked() -> list[Requirement]:
    """The lines of requirements.txt."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]


def installed() -> dict[str, tuple[metadata.Distribution, str]]:
    """Every package that those bring here, and which one asked for it first ("" = we did)."""
    found: dict[str, tuple[metadata.Distribution, str]] = {}
    left = deque((requirement, "") for requirement in asked())
    while left:
        requirement, by = left.popleft()
        name = canonical(requirement.name)
        if name in found and not requirement.extras:
            continue
        try:
            package = metadata.distribution(requirement.name)
        except metadata.PackageNotFoundError:  # of another platform
            continue
        found.setdefault(name, (package, by))
        for text in package.requires or []:
            inner = Requirement(text)
            extras = [*requirement.extras] or [""]
            asks = inner.marker is None or any(inner.marker.evaluate({"extra": e}) for e in extras)
            if asks and canonical(inner.name) not in found:
                left.append((inner, name))
    return found


def licence(package: metadata.Distribution) -> str:
    """In the words of the package: SPDX, classifiers, or the first line of its text."""
    about = package.metadata
    if expression := about.get("License-Expression"):
        return expression
    classifiers = [
        line.rpartition(" :: ")[2]
        for line in about.get_all("Classifier") or []
        if line.startswith("License ::") and line != "License :: OSI Approved"
    ]
    stated = (about.get("License") or "").strip().splitlines()
    return ", ".join(classifiers) or (stated[0][:60] if stated else "not stated in its metadata")


def table() -> str:
    """The generated part of the page."""
    rows = [
        "| package | seen | licence, as the package states it | asked for by |",
        "|---|---|---|---|",
    ]
    for name, (package, by) in sorted(installed().items()):
        rows.append(f"| {name} | {package.version} | {licence(package)} | {by or 'vinejax'} |")
    return "\n" + "\n".join(rows) + "\n"


def main() -> None:
    """Writes the page."""
    written = PAGE.read_text(encoding="utf-8").partition(BEGIN)[0]
    PAGE.write_text(written + BEGIN + table(), encoding="utf-8")


if __name__ == "__main__":
    main()

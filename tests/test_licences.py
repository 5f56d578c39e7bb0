"""docs/licences.md names every package that we ask for, and says which licences bind a user."""

import re

import pytest

from tests import licences

ROW = re.compile(r"^\| (\S+) \| (\S+) \| (.+?) \| (\S+) \|$", re.M)


def rows() -> dict[str, tuple[str, str]]:
    """Licence, and who asks for it, by package."""
    page = licences.PAGE.read_text(encoding="utf-8").partition(licences.BEGIN)[2]
    return {name: (licence, by) for name, _, licence, by in ROW.findall(page)}


def test_every_package_that_we_ask_for_is_on_the_page():
    ours = {name for name, (_, by) in rows().items() if by == "vinejax"}
    assert ours == {licences.canonical(requirement.name) for requirement in licences.asked()}, (
        "requirements.txt was changed: `python -m tests.licences` writes the table anew"
    )


@pytest.mark.parametrize("name", sorted(rows()))
def test_licences_are_known_and_those_that_bind_are_spoken_of(name: str):
    licence, _ = rows()[name]
    assert "not stated" not in licence
    binds = any(word in licence for word in ("GPL", "GNU", "MPL", "Mozilla", "Proprietary"))
    spoken_of = licences.PAGE.read_text(encoding="utf-8").partition(licences.BEGIN)[0]
    assert not binds or f"`{name}`" in spoken_of, f"{name}: {licence}"

"""Where a run may be: links, circles of links, names too long, and paths that lead elsewhere."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e import runs
from vinejax.config import Config, UserError
from vinejax.train import folder

Refused = Callable[..., str]


def test_a_link_to_nothing_is_refused(refused: Refused, out: Path):
    out.symlink_to(out.parent / "nowhere")
    message = refused(*runs.flags(out))
    assert f"--out is {out}, a link to nothing: remove it" in message
    assert not (out.parent / "nowhere").exists()


def test_a_circle_of_links_is_refused(refused: Refused, out: Path):
    out.symlink_to(out)
    assert "give another folder" in refused(*runs.flags(out))
    assert "give another folder" in refused(*runs.flags(out / "below"))


def test_a_name_that_no_file_system_takes_is_refused(refused: Refused, out: Path):
    assert "give another folder" in refused(*runs.flags(out / ("x" * 300)))


def test_a_link_to_a_folder_is_that_folder(tmp_path: Path):
    """What a person has on another disk; a link to somebody's files is refused as they are."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    assert folder.check(link, Config(), resume=False) is False
    (real / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="not empty and holds no run"):
        folder.check(link, Config(), resume=False)
    assert (real / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("field", ["algorithm", "task__name"])
@pytest.mark.parametrize("name", ["../../elsewhere:Method", "/etc/passwd:X", "a\x00b:C", "..a:B"])
def test_a_name_that_is_no_module_makes_no_folder(
    refused: Refused,
    out: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    field: str,
    name: str,
):
    monkeypatch.chdir(tmp_path)
    arguments = [word for word in runs.flags(out, **{field: name}) if "--out" not in word]
    message = refused(*arguments)
    assert f"{field.replace('__', '.')} is {name!r}: write your own as module:Class" in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../../elsewhere", "a/b", "a\nb"])
def test_a_name_that_leads_elsewhere_is_refused(refused: Refused, out: Path, name: str):
    assert "name is" in refused(*runs.flags(out, name=name))

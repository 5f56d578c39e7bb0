"""What the pages say about the code is true, and all that is public says what it is."""

import ast
import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import vinejax
from vinejax.analysis.quality import as_text
from vinejax.config import Config, get

ROOT = Path(__file__).resolve().parents[1]
METHOD = ROOT / "docs" / "method.md"
PAGES = [ROOT / "README.md", ROOT / "BUILD.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = sorted((ROOT / "vinejax").rglob("*.py"))

NAMES = r"`vinejax(?:\.\w+)+`(?:, `vinejax(?:\.\w+)+`)*"  # one, or some in the same file
IN_FILE = re.compile(rf"({NAMES})\s+\(\[[^]]+\]\(([^)]+)\)\)")
FIELD = re.compile(r"`([a-z]+\.\w+)`")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(#[^)\s]+)?\)")


def named(dotted: str) -> Any:
    """The object that a name stands for: what a package exports, before a module of that name."""
    found: Any = vinejax
    path = "vinejax"
    for word in dotted.split(".")[1:]:
        path += f".{word}"
        try:
            found = getattr(found, word)
        except AttributeError:
            assert isinstance(found, ModuleType), f"{dotted}: {found} has no {word}"
            found = importlib.import_module(path)
    return found


def mentioned() -> list[tuple[str, str]]:
    """Every name in the page on the method, with the file that it links to."""
    return [
        (name, link)
        for names, link in IN_FILE.findall(METHOD.read_text(encoding="utf-8"))
        for name in re.findall(r"vinejax[\w.]+", names)
    ]


@pytest.mark.parametrize(("name", "link"), mentioned(), ids=lambda text: text)
def test_a_name_on_the_page_of_the_method_is_in_the_file_beside_it(name: str, link: str):
    source = inspect.getsourcefile(inspect.unwrap(named(name)))
    assert source is not None
    assert Path(source).resolve() == (METHOD.parent / link).resolve()


def test_no_name_on_that_page_is_without_a_file():
    text = METHOD.read_text(encoding="utf-8")
    assert len(mentioned()) == len(re.findall(r"`vinejax\.", text)) > 40


def test_fields_on_that_page_exist():
    fields = FIELD.findall(METHOD.read_text(encoding="utf-8"))
    assert len(fields) > 20
    for field in fields:
        get(Config(), field)  # AttributeError otherwise


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path):
    for link, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        target = page.parent / link
        assert target.exists(), link
        assert not anchor or anchor[1:] in headings(target), f"{link}{anchor}"


def headings(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    found = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(ROOT)))
def test_what_is_public_has_a_docstring(file: Path):
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "the module"
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for node in tree.body:
        if isinstance(node, kinds) and not node.name.startswith("_"):
            assert ast.get_docstring(node), node.name


@pytest.mark.parametrize(
    "package", [f for f in MODULES if f.name == "__init__.py"], ids=lambda f: f.parent.name
)
def test_what_a_package_exports_exists(package: Path):
    dotted = ".".join(package.parent.relative_to(ROOT).parts)
    for name in getattr(importlib.import_module(dotted), "__all__", ()):
        assert named(f"{dotted}.{name}") is not None


def test_the_page_of_the_analysis_says_what_its_signs_are_and_how_few_gradients_there_can_be():
    text = " ".join((ROOT / "docs" / "analysis.md").read_text(encoding="utf-8").split())
    unknown: dict[str, float | None] = {"value": 1.0, "low": 0.5, "high": None}
    assert (as_text(None), as_text(unknown, ".1f")) == ("-", "1.0 (0.5 to ?)")
    assert "`-` is a number that the samples do not give" in text
    assert "`?` is an upper end that is not known" in text
    assert "`--gradients` is at least 4" in text  # what less is refused with: tests/analysis

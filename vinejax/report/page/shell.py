"""What all pages have in common: head, styles, the chart library, and the policy that guards them.

A page's content security policy lets its own script and the chart library run, by their hashes,
and allows no request at all.
"""

import html
import string
from functools import lru_cache
from importlib import resources

from vinejax.report.page import blocks
from vinejax.report.page.text import visible

ASSETS = resources.files("vinejax.report.page") / "assets"


def scripts(*names: str) -> str:
    """Script files of the pages as one text."""
    return "".join((ASSETS / name).read_text("utf-8") for name in names)


@lru_cache(maxsize=1)
def charts() -> str:
    """The element with the chart library, compressed; the page's script unpacks and runs it."""
    return blocks.element("charts", blocks.squeeze(_library().encode(), level=9))


def page(
    kind: str, title: str, subtitle: str, body: str, script: str, about: object, data: str = ""
) -> str:
    """The HTML of a page.

    `kind`, `title` and `subtitle` are text; `body` and `data` are HTML whose texts are escaped;
    `about` has a JSON form.
    """
    hashes = " ".join(map(blocks.policy_hash, (script, _library())))
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return string.Template((ASSETS / "shell.html").read_text("utf-8")).substitute(
        kind=escaped(kind),
        title=escaped(title),
        subtitle=escaped(subtitle),
        policy=html.escape(policy, quote=True),
        style=(ASSETS / "page.css").read_text("utf-8"),
        body=body,
        about=blocks.plain_json(about),
        data=charts() + data,
        script=script,
    )


def escaped(value: object) -> str:
    """HTML that shows `value` as text."""
    return html.escape(visible(str(value)))


@lru_cache(maxsize=1)
def _library() -> str:
    place = resources.files("plotly") / "package_data" / "plotly.min.js"
    return place.read_text("utf-8")

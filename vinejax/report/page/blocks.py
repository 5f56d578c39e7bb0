"""Data inside a page: compressed JSON in script elements that nothing executes.

Base64 has no character that HTML gives a meaning to, so no content can end its element.
"""

import base64
import gzip
import hashlib
import json
from typing import Any


def pack(value: Any) -> str:
    """Base64 of the gzip of the JSON of `value`; equal values give equal text."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return squeeze(text.encode())


def squeeze(data: bytes, level: int = 6) -> str:
    """Base64 of the gzip of `data`."""
    return base64.b64encode(gzip.compress(data, level, mtime=0)).decode()


def element(name: str, packed: str) -> str:
    """The element with the id `name` that holds a packed value."""
    return f'<script type="text/plain" id="{name}">{packed}</script>\n'


def plain_json(value: Any) -> str:
    """JSON that may stand inside a script element: no `<`, nothing but ASCII."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def policy_hash(script: str) -> str:
    """What a content security policy must list so that a script of this text may run."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"

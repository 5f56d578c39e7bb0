"""Every error that a user can meet is on docs/errors.md, names what is wrong, and has a remedy."""

import re

import pytest

from experiments import cli
from tests import messages
from tests.messages import GAP, Message
from vinejax.train import alarms

# A verb that tells what to do, or an answer that the message fills in at its end.
VERBS = """add change choose compare convert copy correct define delete export fetch free give keep
    leave let look lower make map must name need needs pass put raise register remove restore
    resume set start sweep take use used write"""
PHRASES = ("did you mean", "go on", "pip install", "python -m", "says why")
REMEDY = re.compile(rf"\b({'|'.join([*VERBS.split(), *PHRASES])})\b|valid: |[;:,] \(?…\)?$")
# A value that is filled in, a field, a flag, or a file.
NAMES = re.compile(GAP + r"|--\w|\b[a-z_]+\.[a-z_]+\b")


def page() -> str:
    return messages.PAGE.read_text(encoding="utf-8")


def test_the_page_lists_the_messages_of_the_source():
    written = page().partition(messages.BEGIN)[2]
    assert written == messages.listing(), (
        "a message was changed: `python -m tests.messages` writes the list anew"
    )


def extra() -> dict[str, str]:
    """Part of a message that names no remedy -> the remedy, from the page's table."""
    rows = re.findall(r"^\| `(.+?)` \| (.+) \|$", page().partition("## Without a remedy")[2], re.M)
    return dict(rows)


def test_every_message_names_something_and_a_remedy():
    found, others = list(messages.messages()), extra()
    assert len(found) > 200
    for message in found:
        listed = any(part in " ".join(message.text.split()) for part in others)
        where = f"{message.file}:{message.line}: {message.text!r}"
        assert NAMES.search(message.text), f"names no field, value or file: {where}"
        assert REMEDY.search(message.text) or listed, f"no remedy, here or in errors.md: {where}"


def test_the_table_of_remedies_holds_nothing_old():
    texts = [" ".join(message.text.split()) for message in messages.messages()]
    for part in extra():
        assert any(part in text and not REMEDY.search(text) for text in texts), part


@pytest.mark.parametrize("text", ["it failed", "… failed", "seed is wrong: lower"])
def test_the_rule_notices_a_poor_message(text: str):
    message = Message("vinejax/x.py", 1, "UserError", text)
    assert not (NAMES.search(message.text) and REMEDY.search(message.text))


def test_exit_codes_and_alarms_are_on_the_page():
    for code in (cli.DONE, cli.FAILED, cli.USAGE, cli.TOO_LARGE, cli.STORAGE, cli.PREEMPTED):
        assert f"\n| {code} |" in page()
    for alarm in alarms.ALARMS:
        assert f"\n| {alarm.name} |" in page()

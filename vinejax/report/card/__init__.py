"""The model card of an exported policy: README.md as the Hugging Face hub has it.

A header in YAML, which `huggingface_hub` writes, then text. Numbers are those that the run wrote
down; what it has not measured is called unknown. Words from configurations and folders are escaped,
and of a folder only its own name is told. The same run gives the same card, byte for byte.
"""

import json

from huggingface_hub import ModelCardData

from vinejax.config import Gsm8kOptions, MathOptions, to_dict
from vinejax.report.card import facts, terms, use
from vinejax.report.card.exported import Exported
from vinejax.report.card.markdown import plain
from vinejax.report.card.origin import CARD, base_of, on_hub, published

__all__ = ["Exported", "base_of", "card", "files", "header"]

_ENGLISH = ("gsm8k", "math")


def files(exported: Exported) -> dict[str, str]:
    """Texts to write beside the weights, by name: the card, and the run's configuration."""
    data = published(to_dict(exported.config))
    return {
        CARD: card(exported),
        facts.CONFIG: json.dumps(data, indent=2) + "\n",
    }


def card(exported: Exported) -> str:
    """The whole card."""
    config = exported.config
    name, task = plain(published(config.name)), plain(exported.task_name)
    parts = [
        f"---\n{header(exported).to_yaml()}\n---",
        f"# {name}: {plain(config.algorithm)} on {task}",
        facts.about(exported),
        f"## How it was made\n\n{facts.how(exported)}",
        f"## What it scores\n\n{facts.scores(exported)}",
        f"## Data and task\n\n{facts.data(exported)}",
        f"## How to use it\n\n{use.how(exported)}",
        f"## Limits and misuse\n\n{terms.limits(exported)}",
        f"## Licence\n\n{terms.licence(exported.base)}",
        f"## Citation\n\n{terms.CITATION}",
    ]
    return "\n\n".join(parts) + "\n"


def header(exported: Exported) -> ModelCardData:
    """What the hub reads: only what is known; a base model that is no hub id is left out."""
    config, base = exported.config, exported.base
    licence = base.licence if base else None
    options = config.task.options
    hub = options.hub if isinstance(options, Gsm8kOptions | MathOptions) else None
    # On one line: a line of three dashes would be the header's end for simpler readers than YAML's.
    method = " ".join(config.algorithm.split())
    from_hub = config.task.path is None and hub is not None and on_hub(hub)
    return ModelCardData(
        license=licence.identifier if licence else None,
        license_name=licence.name if licence else None,
        license_link=licence.link if licence else None,
        base_model=base.name if base and base.on_hub else None,
        datasets=hub if from_hub else None,
        language="en" if config.task.name in _ENGLISH else None,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["vinejax", method, *(["math"] if config.task.name in facts.TASKS else [])],
    )

"""How the policy is asked: the prompt of its training, in code that can be run."""

from vinejax.report.card.exported import Exported
from vinejax.tasks import Problem, Task

_SLOT = "{problem}"  # stands in the template for a problem
_EXAMPLES = {
    "gsm8k": "Ada has 2 pens and gets 3 more. How many has she?",
    "ledger": "4+3-9*7+1-5*3+2-8",
    "math": "What is $2 + 3$?",
}
# Of another task nothing is known but that its problems are text; its data may not be public.
_ANY = "HERE THE TEXT OF A PROBLEM"


def how(exported: Exported) -> str:
    """The template, the rule of the beginning-of-sequence token, and code that keeps both."""
    template, tokenizer, stop = _template(exported.task), exported.tokenizer, exported.task.stop
    if template is None:
        before = "The prompt is what the task's `prompt` method gives for a problem."
    else:
        before = f"The prompt is `template` below with a problem in place of `{_SLOT}`, unchanged."
    if tokenizer.bos_id is None:
        before += " The tokenizer has no beginning-of-sequence token."
        ids = "ids = tokenizer(prompt, add_special_tokens=False).input_ids"
    else:
        adds = "would put it there as well" if tokenizer.adds_bos else "adds none by itself"
        before += (
            " Training put one beginning-of-sequence token in front of every prompt, and the "
            f"model needs it; the tokenizer in this folder {adds}."
        )
        ids = (
            "ids = [tokenizer.bos_token_id]\n"
            "ids += tokenizer(prompt, add_special_tokens=False).input_ids"
        )
    before += " A chat template would be another prompt than that of training."
    example = _EXAMPLES.get(exported.config.task.name, _ANY)
    more = f", stop_strings={list(stop)!r}, tokenizer=tokenizer" if stop else ""
    code = f"""\
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "PATH"
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder)

template = {_SLOT if template is None else template!r}
prompt = template.replace("{_SLOT}", {example!r})
{ids}
given = torch.tensor([ids])
# Named, because it would otherwise be guessed, wrongly where padding has the id of a real token.
found = model.generate(given, attention_mask=torch.ones_like(given){more})
print(tokenizer.decode(found[0, len(ids) :], skip_special_tokens=True))"""
    after = "`generation_config.json` has the settings under which the numbers above were measured."
    if stop:
        after += " A response ends at a stop string, which is no part of it: cut it off."
    return f"{before}\n\n```python\n{code}\n```\n\n{after}"


def _template(task: Task) -> str | None:
    """The prompt of a problem whose text is the slot; None where a task makes no text of that."""
    try:
        text = task.prompt(Problem(id="0", problem=_SLOT, solution="", answer=""))
    except Exception:  # a task of a user's own may want more of a problem than text
        return None
    return text if isinstance(text, str) and text.count(_SLOT) == 1 else None

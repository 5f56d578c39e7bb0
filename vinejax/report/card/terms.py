"""What the policy is not fit for, whose licence binds it, and what to cite."""

from vinejax.report.card.exported import Exported
from vinejax.report.card.markdown import plain
from vinejax.report.card.origin import Base

_LIMITS = """\
- A research model for one kind of problem, and tested on nothing else. It was not made for
  conversation, was not trained to be safe, and writes outside of its task what its base model would
  write, or noise.
- It may write a wrong answer with the same confidence as a right one.
- Intervals are over test problems. They say nothing of what another seed would have given.
- Not for grading people, for homework that is to be judged, or for arithmetic that anyone's safety,
  health or money depends on. Check every answer by other means."""
_REWARDED = """\
- The reward was verifiable: a program's verdict on the final answer. Steps on the way to it were
  not checked, so a right answer may stand below wrong reasoning.
- A policy can learn to please the grader instead of solving the problem. Look at responses before
  you believe a number."""
_TWO_GRADERS = """\
- The `authors` grader is lenient; where its pass@1 is above that of the `strict` one, the
  difference may be just that."""
_IMITATED = """\
- It imitates demonstrations, with whatever errors these have."""
CITATION = """\
The method and the settings are those of this paper, in an implementation of its own (vinejax):

```bibtex
@inproceedings{kazemnejad2025vineppo,
  title     = {{VinePPO}: Refining Credit Assignment in {RL} Training of {LLMs}},
  author    = {Kazemnejad, Amirhossein and Aghajohari, Milad and Portelance, Eva and
               Sordoni, Alessandro and Reddy, Siva and Courville, Aaron and Le Roux, Nicolas},
  booktitle = {International Conference on Machine Learning (ICML)},
  year      = {2025},
  eprint    = {2410.01679},
  archivePrefix = {arXiv}
}
```"""


def limits(exported: Exported) -> str:
    """Limits that every policy has, and those of what it learnt from."""
    found = [_LIMITS, _REWARDED if exported.run.planned else _IMITATED]
    if exported.task.has_two_graders:
        found.append(_TWO_GRADERS)
    return "\n".join(found)


def licence(base: Base | None) -> str:
    """In words what the header says of the licence, or why it says nothing."""
    if base is None:
        return (
            "The weights were trained from random ones, so there is no base model whose licence "
            "binds them. Whoever publishes them chooses a licence, and puts it into the header."
        )
    name, licence = plain(base.name), base.licence
    if licence is None:
        return (
            f"The licence of the base model {name} is not stated by its folder: look it up before "
            "you use or pass on these weights. They are derived from it."
        )
    if licence.identifier is None:
        return (
            f"The base model {name} has a licence text, {licence.where}, that begins with "
            f'"{plain(licence.begins)}". Read it there; these weights are derived from that model.'
        )
    called = plain(f"{licence.identifier} ({licence.name})" if licence.name else licence.identifier)
    return (
        f"The base model {name} is under {called}, as its {licence.where} says. These weights are "
        "derived from it, and its terms go with them."
    )

r"""Final answers of MATH texts, as DeepSeekMath's evaluation takes them (Minerva's extraction),
with changes by VinePPO's authors: `math_answer_exctraction.py` in their repository, commit efe7228.

The same function reads gold solutions and responses. Its oddities are kept, as they decide who is
right: `\cdot` is deleted, an unclosed box gives no answer although there are numbers, and a text
without box may be graded by its last number.

All steps are linear in the length of the text, except the clean-up of an answer, which is at worst
quadratic: an answer of more than `LONGEST` characters is left as it is (and `compare` holds it to
be equal to nothing but itself).
"""

import re

LONGEST = 10_000  # characters of an answer; those of MATH's solutions have at most 159

AND = re.compile(r"\\text\{\s*and\s*\}")
NUMBER = re.compile(r"-?\d*\.?\d+")
UNIT = re.compile(r"\{[cm]?m\}(?:\^[23])?")
MBOX = re.compile(r"\\mbox\{.*?\}")
ZEROS_INSIDE = re.compile(r"(\d+)\.0+([^\d])")
ZEROS_AT_END = re.compile(r"(\d+)\.0+$")
# Per command, in this order: an argument right behind it; one at the end, after blanks.
ARGUMENTS = [
    (re.compile(rf"\\{name}{argument}"), rf"\\{name}{{\1}}")
    for name in ("sqrt", "tan")
    for argument in (r"(-?[0-9.a-zA-Z]+)", r"\s+(\w+)$")
]


def answers(text: str, question: str) -> list[str]:
    """The final answers that a solution or response states, cleaned up; [] if it states none.

    question: the problem; if it asks for values "separated by commas", answers are split there.
    """
    found = []
    for answer in _stated(text):
        answer = _clean(_one_line(answer))
        if "separated by commas" in question and not any(bracket in answer for bracket in "()[]"):
            found += [part.strip() for part in answer.split(",")]
        else:
            found += [part.strip() for part in AND.split(answer)]
    return found


def _stated(text: str) -> list[str]:
    """The raw answers, by the first rule that fits."""
    if "final answer is $" in text and "$. I hope" in text:
        return [text.split("final answer is $", 1)[1].split("$. I hope", 1)[0]]
    if "boxed" in text:
        return _boxed(text)
    if "he answer is" in text:
        return [text.rpartition("he answer is")[2]]
    if "```output" in text:
        output = text.rpartition("```output")[2].partition("```")[0].strip()
        if output:
            return [output]
    numbers = NUMBER.findall(text.replace(",", ""))
    return numbers[-1:]


def _boxed(text: str) -> list[str]:
    """What stands in boxes. A box ends where the next one begins, so that of nested boxes only the
    inner one is read."""
    contents = []
    for piece in text.split("boxed{")[1:]:
        depth = 0
        for brace in re.finditer("[{}]", piece):
            depth += 1 if brace[0] == "{" else -1
            if depth < 0:
                end = brace.start()
                contents.append(piece[: end + 1] if piece[end + 1 :][:1] == "%" else piece[:end])
                break
    return contents


def _one_line(answer: str) -> str:
    return answer.strip().split("\n")[0].lstrip(":").rstrip(".").rstrip("/")


def _clean(text: str) -> str:
    """The clean-up, in the order that the verdicts depend on."""
    if len(text) > LONGEST:
        return text
    text = _without_wrapping(text)
    text = _without_units(text)
    text = _plain_signs(text)
    text = ZEROS_INSIDE.sub(r"\1\2", text)
    text = ZEROS_AT_END.sub(r"\1", text)
    if not text:
        return text
    if text[0] == ".":
        text = "0" + text
    for pattern, braced in ARGUMENTS:
        text = pattern.sub(braced, text)
    text = _fractions(text.replace(" ", ""))
    return _slash(text).rstrip("\\,.")


def _without_wrapping(text: str) -> str:
    text = text.strip().replace("\n", "").rstrip(".").replace("\\!", "")
    if text.startswith("\\text{") and text.endswith("}"):
        text = text.removeprefix("\\text{")[:-1]
    for variant in ("tfrac", "dfrac", "cfrac"):
        text = text.replace(variant, "frac")
    return text.replace("\\left", "").replace("\\right", "")


def _without_units(text: str) -> str:
    words = text.find("\\text{")
    if words >= 0 and text.endswith("}") and text[:words].strip():
        text = text[:words].strip()
    text = text.replace("^{\\circ}", "").strip().replace("^\\circ", "").strip()
    text = UNIT.sub("", text).strip().removesuffix("p.m.").strip()
    number = text[:-1].rstrip()
    if text.endswith("t") and re.match(r"\d", number[-1:]):
        text = number
    return text.replace("\\$", "").replace("$", "")


def _plain_signs(text: str) -> str:
    text = text.replace("x\\in", "").replace("\\%", "%").replace("\\%", "%")
    text = text.replace(" .", " 0.").replace("{.", "{0.").replace("\\cdot", "")
    text = text.replace("infinity", "\\infty")
    if "\\infty" not in text:
        text = text.replace("inf", "\\infty")
    text = text.replace("+\\inity", "\\infty")  # the authors' misspelling; it hardly ever occurs
    text = MBOX.sub("", text.replace("\\mathbf", "").replace("\\mathrm", ""))
    if "j" in text and "i" not in text:
        text = text.replace("j", "i")
    return text


def _fractions(text: str) -> str:
    r"""`\frac12` and `\frac1{72}`, but not `\frac{72}1`, get their braces. If a fraction is cut off
    behind less than two characters, all are left as they are."""
    first, *rest = text.split("\\frac")
    repaired = [first]
    for part in rest:
        if part[:1] == "{":
            repaired.append(part)
        elif len(part) < 2:
            return text
        elif part[1] == "{":
            repaired.append(f"{{{part[0]}}}{part[1:]}")
        else:
            repaired.append(f"{{{part[0]}}}{{{part[1]}}}{part[2:]}")
    return "\\frac".join(repaired)


def _slash(text: str) -> str:
    r"""`1/2` becomes a fraction if both sides are plain integers or contain `sqrt`."""
    sides = text.split("/")
    if len(sides) != 2 or not all("sqrt" in side or _is_integer(side) for side in sides):
        return text
    return f"\\frac{{{sides[0]}}}{{{sides[1]}}}"


def _is_integer(text: str) -> bool:
    """Whether Python would write it in the same way: no plus sign, leading zero or blank."""
    try:
        return str(int(text)) == text
    except ValueError:
        return False

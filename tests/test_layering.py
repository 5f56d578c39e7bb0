"""The flow between the parts of vinejax goes one way, and host code never starts JAX."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "vinejax"

# A part imports from its own layer and from those above it.
LAYERS = (
    ("config", "files", "statistics"),
    ("arrays", "masked", "rng", "sharding", "processes"),
    ("tokenizer", "stop", "tasks", "journal", "grading"),
    ("policy",),
    ("sampler",),
    ("vine",),
    ("advantages",),
    ("update",),
    ("checkpoint", "report", "compiled"),
    ("train",),
    ("analysis",),
)
RANK = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}
HOST = (
    "config",
    "tokenizer",
    "stop",
    "tasks",
    "journal",
    "grading",
)  # runs in processes that have no JAX
# The flow would allow these, but the maths must not depend on how the data was made.
APART = {"advantages": {"policy", "sampler", "vine"}, "update": {"sampler", "vine"}}


def part_of(file: Path) -> str:
    """vinejax/policy/rope.py -> policy, vinejax/rng.py -> rng."""
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def modules() -> list[Path]:
    return [file for file in sorted(PACKAGE.rglob("*.py")) if file != PACKAGE / "__init__.py"]


def imports(file: Path) -> Iterator[str]:
    """Dotted names of all imports, also those inside functions; relative ones are resolved."""
    package = ["vinejax", *file.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from vinejax import policy` imports the part that the alias names.
            yield from (f"{module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("file", modules(), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_follow_the_flow(file: Path):
    part = part_of(file)
    assert part in RANK, f"give vinejax.{part} a place in LAYERS"
    for name in imports(file):
        words = name.split(".")
        if words[0] == "vinejax" and len(words) > 1 and words[1] in RANK:
            assert RANK[words[1]] <= RANK[part], f"{part} imports {name}, which comes after it"
            assert words[1] not in APART.get(part, ()), f"{part} must not know {words[1]}"


@pytest.mark.parametrize("part", HOST)
def test_host_code_does_not_name_jax(part: str):
    for file in modules():
        if part_of(file) == part:
            roots = {name.split(".")[0] for name in imports(file)}
            assert not roots & {"jax", "jaxlib", "flax", "optax", "orbax", "chex"}, file


def test_nothing_in_the_library_sets_the_compile_cache():
    for file in modules():
        assert "compilation_cache" not in file.read_text().lower(), file


def test_importing_host_code_starts_no_jax():
    code = (
        "import sys, vinejax, vinejax.config, vinejax.tokenizer, vinejax.stop, vinejax.grading\n"
        "from vinejax import tasks\n"
        "tasks.get('ledger'); tasks.get('gsm8k'); tasks.get('math')\n"
        "print('jax' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", "False"]


def test_the_public_surface_is_lazy_and_complete():
    import vinejax

    assert set(vinejax.__all__) <= set(dir(vinejax))
    assert vinejax.tasks.names()
    with pytest.raises(AttributeError, match="no attribute 'trainer'"):
        _ = vinejax.trainer

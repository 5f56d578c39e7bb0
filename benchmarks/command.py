"""The command line that benchmarks share: flags in, a table or one JSON line out."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from experiments import cli

Flags = TypeVar("Flags")


def run(
    argv: Sequence[str] | None,
    flags: Flags,
    name: str,
    about: str | None,
    measure: Callable[[Any], dict[str, Any]],
    table: Callable[[dict[str, Any]], str],
) -> int:
    """Exit code of `python -m benchmarks.NAME`; `flags` are the defaults and have a field `json`.

    Help shows the first paragraph of `about`.
    """

    def command(argv: list[str]) -> None:
        text = (about or "").partition("\n\n")[0]
        given: Any = cli.parse_flags(argv, flags, f"python -m benchmarks.{name}", text)
        cli.use_compile_cache()
        result = measure(given)
        if given.json:
            cli.print_json(result)
        else:
            print(table(result))

    return cli.execute(command, argv)

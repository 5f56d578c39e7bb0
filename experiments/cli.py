"""The command line that all commands share: a named configuration, its fields as flags, exit codes.

`--config=NAME` picks a configuration, `--config.algorithm=METHOD` its numbers for that method,
`--config.FIELD.SUB=VALUE` changes one of its fields, and the command's own flags stand beside them.
Underscores and hyphens are the same; booleans take true or false, and a bare flag means true.
Errors go to standard error.

Exit codes: 0 done, 1 failed, 2 wrong usage (nothing was started), 3 does not fit (plans), 74 the
disk took no more (what was saved stays, a run is resumable), 75 preempted and resumable.
"""

import contextlib
import dataclasses
import difflib
import json
import logging
import os
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tyro

from experiments import configs
from vinejax.config import (
    OPTIONS,
    Config,
    ConfigError,
    Preempted,
    RunError,
    StorageError,
    UserError,
    flatten,
    nearest,
    with_preset,
)
from vinejax.files import FULL

DONE, FAILED, USAGE, TOO_LARGE, STORAGE, PREEMPTED = 0, 1, 2, 3, 74, 75

Flags = TypeVar("Flags")
_CLOSE = 0.75  # likeness of two names from which on the one is taken to be meant by the other
_TYRO = (tyro.conf.AvoidSubcommands, tyro.conf.FlagConversionOff)


def execute(command: Callable[[list[str]], int | None], argv: Sequence[str] | None = None) -> int:
    """Run `command` on the arguments and return the exit code, which may be its result.

    Exceptions that are no fault of the user's pass through.
    """
    quiet_libraries()
    try:
        code = command(list(sys.argv[1:] if argv is None else argv))
    except RunError as error:
        print(f"stopped: {error}", file=sys.stderr)
        return FAILED
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except Preempted as error:
        print(f"preempted: {error}; the same command with --resume goes on", file=sys.stderr)
        return PREEMPTED
    except (StorageError, OSError) as error:
        return _disk_failed(error)
    except KeyboardInterrupt:
        print("interrupted; with --resume a run goes on from its last checkpoint", file=sys.stderr)
        return FAILED
    return DONE if code is None else code


def _disk_failed(error: StorageError | OSError) -> int:
    """Says what could not be written; an error of another kind passes through."""
    text = str(error)
    if isinstance(error, OSError):
        if error.errno not in FULL:
            raise error
        text = f"{error.filename or 'a file'} could not be written: {text}; free space there"
    with contextlib.suppress(OSError):  # standard error may lie on the same disk
        print(f"error: {text}", file=sys.stderr)
    return STORAGE


def parse(
    argv: Sequence[str], defaults: Flags, prog: str, about: str, start: Config | None = None
) -> tuple[Config, Flags]:
    """The configuration and the flags that `argv` asks for; `defaults` is a dataclass of flags.

    Fields that no flag names are those of `start`, or else of --config=NAME. Raises ConfigError for
    a missing or unknown name; a value of the wrong type, and --help, end in SystemExit with 2 and
    0. Rules between fields are not checked here: `Config.validate` does.
    """
    name, rest = _split(argv)
    if start is not None and name is not None:
        raise ConfigError(f"--config is {name!r}, but the run has its own: leave it out")
    if start is None and name is None and not {"-h", "--help"} & set(rest):
        raise ConfigError(f"--config=NAME is missing; choose from {', '.join(configs.names())}")
    # Without a name, help shows the fields of tiny: they include those of a random architecture.
    words = given(rest)
    # The method chooses the configuration's numbers, which the other flags then change.
    config = _adapt(start or configs.get(name or "tiny", words.get("config.algorithm")), words)
    if "choices" in words and hasattr(defaults, "choices"):
        config = with_preset(config, words["choices"])
    about += f"\n\nConfigurations: {', '.join(configs.names())}."
    both = dataclasses.make_dataclass(
        "Arguments",
        [
            ("flags", typing.Annotated[type(defaults), tyro.conf.arg(name="")]),
            ("config", Config),
        ],
    )
    parsed = _tyro(both, both(defaults, config), rest, prog, about)
    return parsed.config, parsed.flags


def parse_flags(argv: Sequence[str], defaults: Flags, prog: str, about: str) -> Flags:
    """The flags of a command that takes no configuration; errors as in `parse`."""
    return _tyro(type(defaults), defaults, list(argv), prog, about)


def print_json(result: Mapping[str, Any]) -> None:
    """One JSON line on standard output, the last that a command prints."""
    print(json.dumps(result), flush=True)


def quiet_libraries() -> None:
    """Libraries report through logging what no user of a command can act on; errors still show."""
    for name in ("absl", "transformers", "orbax", "jax"):
        logging.getLogger(name).setLevel(logging.ERROR)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


def use_compile_cache() -> None:
    """Keep compiled programs on disk unless the environment says otherwise; call before JAX loads.

    JAX leaves out programs that took under a second to compile, which here are most of them.
    """
    folder = Path.home() / ".cache" / "vinejax" / "xla"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")


def _split(argv: Sequence[str]) -> tuple[str | None, list[str]]:
    """The last --config=NAME (or --config NAME) and all other arguments."""
    name, rest, words = None, [], iter(argv)
    for word in words:
        if word == "--config":
            name = next(words, "")
        elif word.startswith("--config="):
            name = word.partition("=")[2]
        else:
            rest.append(word)
    return name, rest


def _key(word: str) -> str:
    """Field name of a flag: --config.sft.max-length=3 -> config.sft.max_length."""
    return word.partition("=")[0].removeprefix("--").replace("-", "_")


def given(argv: Sequence[str]) -> dict[str, str]:
    """Field name and text of every flag, in either spelling (--a=b or --a b)."""
    following = [*argv, ""][1:]
    return {
        _key(word): word.partition("=")[2] if "=" in word else after
        for word, after in zip(argv, following, strict=True)
        if word.startswith("--")
    }


def _adapt(config: Config, flags: Mapping[str, str]) -> Config:
    """Drop from the defaults what a flag makes meaningless.

    A model on disk brings its own architecture, another task its own options.
    """
    if any(flags.get(f"config.{name}", "None") != "None" for name in ("policy.path", "sft.path")):
        config = dataclasses.replace(
            config, policy=dataclasses.replace(config.policy, architecture=None)
        )
    task = flags.get("config.task.name", config.task.name)
    if task != config.task.name:
        options = OPTIONS[task]() if task in OPTIONS else None
        config = dataclasses.replace(config, task=dataclasses.replace(config.task, options=options))
    return config


def _tyro(kind: Any, default: Any, argv: list[str], prog: str, about: str) -> Any:
    fields = {name.removeprefix("flags."): value for name, value in flatten(default)}
    argv = _spell_booleans(
        argv, {name for name, value in fields.items() if value is True or value is False}
    )
    for word in argv:
        if word.startswith("--") and word != "--help" and _key(word) not in fields:
            raise ConfigError(f"unknown option --{_key(word)}; {_remedy(_key(word), fields)}")
    return tyro.cli(
        kind,
        prog=prog,
        description=about,
        args=argv,
        default=default,
        use_underscores=True,
        config=_TYRO,
    )


def _remedy(name: str, fields: Mapping[str, Any]) -> str:
    """What to write instead of a flag that does not exist."""
    if name.startswith("config.task.options."):
        return (
            "this task has no such option for the command line; a task of your own takes its "
            "options where it is registered (tasks.register, tasks.get)"
        )
    same = [field for field in fields if field.lower() == name.lower()]
    if same or not name:
        return f"did you mean --{same[0]}?" if same else "it has no name"
    ends = _by_end(name.removeprefix("config.").lower(), fields)
    if ends:
        return f"did you mean {' or '.join('--' + field for field in ends)}? (--help lists all)"
    close = nearest("--" + name, ["--" + field for field in fields])
    return f"{close} (--help lists all)"


def _by_end(name: str, fields: Iterable[str]) -> list[str]:
    """The fields that end in `name`, such as k or values.k; in what it nearly is, if none does."""
    ends: dict[str, list[str]] = {}
    for field in fields:
        parts = field.split(".")
        for count in range(1, len(parts) + 1):
            ends.setdefault(".".join(parts[-count:]).lower(), []).append(field)
    close = difflib.get_close_matches(name, ends, n=1, cutoff=_CLOSE)
    return ends.get(name) or [field for end in close for field in ends[end]]


def _spell_booleans(argv: Sequence[str], booleans: set[str]) -> list[str]:
    """Give bare boolean flags the value True, and true/false the spelling that tyro takes."""
    spelled, truths = [], {"true": "True", "false": "False"}
    for word, after in zip(argv, [*argv, ""][1:], strict=True):
        flag, equals, value = word.partition("=")
        if not word.startswith("--") or _key(word) not in booleans:
            previous = spelled[-1] if spelled else ""
            is_value = previous.startswith("--") and _key(previous) in booleans
            spelled.append(truths.get(word.lower(), word) if is_value else word)
        elif equals:
            spelled.append(f"{flag}={truths.get(value.lower(), value)}")
        else:
            spelled.append(word if after.lower() in truths else f"{flag}=True")
    return spelled

"""Checkpoints of a run: named arrays and a JSON record, through Orbax, without pickle.

A step's folder appears by a rename when everything in it is written, so a process that dies in a
save leaves a temporary folder, never half a checkpoint. The last file written, `files.json`, notes
the size of every other one: a folder that disagrees is damaged (an interrupted copy or deletion, a
failing disk).
"""

import contextlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers

from vinejax import processes
from vinejax.checkpoint import leaves
from vinejax.config import UserError
from vinejax.files import write_json

FORMAT_VERSION = 1

T = TypeVar("T")

_TEMPORARY = ".orbax-checkpoint-tmp"
_SIZES = "files.json"


class CheckpointError(UserError):
    """A checkpoint that cannot be read, or does not fit what the run expects."""


class CheckpointWarning(UserWarning):
    """A torn or damaged checkpoint was found and left aside."""


class Checkpoints:
    """The checkpoints in one folder. A context manager; leaving it waits for the running save.

    The newest `keep` stay, and every step that `keep_period` divides. A reader (`read_only`)
    removes nothing, so it may look into the folder of a run that is still going; a writer removes
    what earlier saves left unfinished, with a CheckpointWarning that names it.
    """

    def __init__(
        self,
        folder: str | Path,
        keep: int = 1,
        keep_period: int | None = None,
        read_only: bool = False,
    ):
        self.folder = Path(folder).absolute()
        if read_only and not self.folder.is_dir():
            raise CheckpointError(f"{self.folder} does not exist; name the folder of a run")
        if not read_only and keep < 1:
            raise CheckpointError(f"keep is {keep}; keep at least 1 checkpoint")
        if not read_only and processes.is_first():
            _name_torn(self.folder)
        policies: list[Any] = [checkpoint_managers.LatestN(keep)]
        if keep_period:
            policies.append(checkpoint_managers.EveryNSteps(keep_period))
        kept = checkpoint_managers.AnyPreservationPolicy(policies)
        self._saving: int | None = None
        self._manager = ocp.CheckpointManager(
            self.folder,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=None if read_only else kept,
                cleanup_tmp_directories=not read_only,
                create=not read_only,
                save_interval_steps=0 if read_only else 1,
                read_only=read_only,
                async_options=ocp.AsyncOptions(post_finalization_callback=self._seal),
            ),
            item_handlers={
                "arrays": ocp.PyTreeCheckpointHandler(),
                "record": ocp.JsonCheckpointHandler(),
            },
        )

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def save(self, step: int, tree: Any, meta: dict[str, Any]) -> None:
        """Start to write a tree of arrays, as they are now, and a JSON object.

        Returns once the arrays may be donated or overwritten; a failure of the writing itself is
        raised by the next `save`, `wait` or `close`. Lists stand for tuples when `meta` is read.
        """
        if step in self._manager.all_steps():
            raise ValueError(f"checkpoint {step} exists; call delete_after({step - 1}) first")
        named = leaves.named(tree)
        record = {
            "format": FORMAT_VERSION,
            "arrays": {name: leaves.signature(leaf) for name, leaf in named.items()},
            "keys": {name: impl for name, leaf in named.items() if (impl := leaves.key_impl(leaf))},
            "meta": meta,
        }
        json.dumps(record)  # what is no JSON fails here, not in the writing thread
        arrays = {name: leaves.detached(leaf) for name, leaf in named.items()}
        self.wait()
        self._saving = step
        self._manager.save(
            step,
            args=ocp.args.Composite(
                arrays=ocp.args.PyTreeSave(arrays), record=ocp.args.JsonSave(record)
            ),
            force=True,  # every step that is asked for, whatever was saved before
        )

    def wait(self) -> None:
        """Return when the running save is on disk."""
        self._manager.wait_until_finished()

    def close(self) -> None:
        """Wait, and end the writing threads."""
        self._manager.close()

    def steps(self) -> list[int]:
        """All steps that have a folder, ascending, whether or not they can be restored."""
        self.wait()
        self._manager.reload()
        return sorted(self._manager.all_steps())

    def latest(self) -> int | None:
        """The newest complete step; incomplete ones are named in a CheckpointWarning."""
        for step in reversed(self.steps()):
            try:
                self._record(step)
            except _Damaged as damage:
                _skip(self.folder, step, damage)
            else:
                return step
        return None

    def restore_latest(self, target: Any) -> tuple[int, Any, dict[str, Any]] | None:
        """(step, tree, meta) of the newest checkpoint that can be read; None when there is none.

        A damaged one is named in a CheckpointWarning, and the one before is tried. Raises
        CheckpointError when all are damaged, and, without trying others, when one does not fit.
        """
        steps = self.steps()
        for step in reversed(steps):
            try:
                return step, *self._restore(step, target, partial=False)
            except _Damaged as damage:
                _skip(self.folder, step, damage)
        if steps:
            raise CheckpointError(
                f"none of the checkpoints {steps} in {self.folder} can be read; restore them from "
                "a copy, or start again in another output folder"
            )
        return None

    def restore(self, step: int, target: Any, partial: bool = False) -> tuple[Any, dict[str, Any]]:
        """The tree and the JSON object of one step.

        `target` is a tree of arrays or ShapeDtypeStructs; the result has its structure, and its
        shardings: those on which it was saved do not matter. A leaf without a sharding, or not
        committed to a device, is restored uncommitted; a NumPy leaf as NumPy. With `partial`, the
        checkpoint may hold more than the target (the weights without the optimizer's state).
        Raises CheckpointError when the checkpoint is damaged, does not fit, or has an unknown
        format.
        """
        if step not in self.steps():
            raise CheckpointError(
                f"{self.folder} has no checkpoint {step}; it has {self.steps() or 'none'}"
            )
        try:
            return self._restore(step, target, partial)
        except _Damaged as damage:
            raise CheckpointError(
                f"checkpoint {step} in {self.folder} is damaged: {damage}; use another one of "
                f"{self.steps()}"
            ) from damage

    def delete_after(self, step: int) -> None:
        """Remove every checkpoint later than `step`: the resumed run writes its own."""
        for later in self.steps():
            if later > step:
                self._manager.delete(later)

    def _seal(self) -> None:
        """Note the sizes of the files; Orbax calls it, on one process, just before the rename."""
        written = list(self.folder.glob(f"{self._saving}{_TEMPORARY}*"))
        for folder in written or [self.folder / str(self._saving)]:
            write_json(folder / _SIZES, _sizes(folder))

    def _record(self, step: int) -> dict[str, Any]:
        """The JSON record; raises _Damaged, or CheckpointError for an unknown format."""

        def read() -> dict[str, Any]:
            _check_sizes(self.folder / str(step))
            part = self._manager.restore(
                step, args=ocp.args.Composite(record=ocp.args.JsonRestore())
            )
            part["record"]["format"]  # it must have one
            return part["record"]

        record = _by_all(read)
        version = record["format"]
        if version != FORMAT_VERSION:
            raise CheckpointError(
                f"checkpoint {step} in {self.folder} has format {version!r}, this version of "
                f"vinejax reads {FORMAT_VERSION}; use the version that wrote it"
            )
        return record

    def _restore(self, step: int, target: Any, partial: bool) -> tuple[Any, dict[str, Any]]:
        record, named = self._record(step), leaves.named(target)
        self._check_fit(step, record["arrays"], named, partial)
        stored = {name: leaves.stored(leaf) for name, leaf in named.items()}
        arguments = ocp.args.PyTreeRestore(
            item=stored,
            restore_args={name: leaves.restore_args(data) for name, data in stored.items()},
            partial_restore=partial,
        )

        def read() -> dict[str, Any]:
            part = self._manager.restore(step, args=ocp.args.Composite(arrays=arguments))
            return jax.block_until_ready(part["arrays"])

        arrays = _by_all(read)
        keys = record["keys"]
        values = [leaves.like(leaf, arrays[name], keys.get(name)) for name, leaf in named.items()]
        return jax.tree.unflatten(jax.tree.structure(target), values), record["meta"]

    def _check_fit(
        self, step: int, saved: dict[str, Any], named: dict[str, Any], partial: bool
    ) -> None:
        wrong = []
        for name, leaf in named.items():
            expected, found = leaves.signature(leaf), saved.get(name, ["missing"])
            if found != expected:
                found, expected = (" ".join(map(str, one)) for one in (found, expected))
                wrong.append(f"{name} is {found}, expected {expected}")
        if not partial:
            wrong += [f"{name} is not expected" for name in saved if name not in named]
        if wrong:
            more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
            raise CheckpointError(
                f"checkpoint {step} in {self.folder} is of another run: {wrong[0]}{more}; resume "
                "with the configuration that wrote it, or choose another output folder"
            )


def whole(folder: Path) -> list[int]:
    """Steps in `folder` whose files are there with their sizes; asks no other process."""
    found = []
    for path in folder.glob("*"):
        with contextlib.suppress(_Damaged):
            if path.name.isdigit():
                _check_sizes(path)
                found.append(int(path.name))
    return sorted(found)


class _Damaged(Exception):
    """Files of a checkpoint are missing, cut off or unreadable."""


def _by_all(read: Callable[[], T]) -> T:
    """What `read` gives; _Damaged in all processes if any cannot read."""
    try:
        result, problem = read(), None
    except _Damaged as damage:
        result, problem = None, str(damage)
    except Exception as error:  # Orbax has no common class for what a broken file raises
        result, problem = None, _first_line(error)
    problem = processes.first_of(problem)
    if problem is not None:
        raise _Damaged(problem)
    return cast(T, result)


def _name_torn(folder: Path) -> None:
    """Warn of saves that never finished; Orbax removes them when it opens the folder."""
    torn = sorted(path.name for path in folder.glob(f"*{_TEMPORARY}*"))
    if torn:
        warnings.warn(
            f"{folder}: removing unfinished checkpoints {', '.join(torn)} of a save that was "
            "interrupted",
            CheckpointWarning,
            stacklevel=3,
        )


def _sizes(folder: Path) -> dict[str, int]:
    """Of the files that hold the content; Orbax goes on to write about the commit elsewhere."""
    items = [sorted((folder / item).rglob("*")) for item in ("arrays", "record")]
    paths = (path for paths in items for path in paths if path.is_file())
    return {str(path.relative_to(folder)): path.stat().st_size for path in paths}


def _check_sizes(folder: Path) -> None:
    """Before Orbax reads: of a cut-off file it would print hundreds of lines from its threads."""
    try:
        noted = json.loads((folder / _SIZES).read_text("utf-8")).items()
    except (OSError, ValueError, AttributeError) as error:
        raise _Damaged(f"{_SIZES}: {_first_line(error)}") from error
    found = _sizes(folder)
    for name, size in noted:
        if name not in found:
            raise _Damaged(f"{name} is missing")
        if found[name] != size:
            raise _Damaged(f"{name} has {found[name]} bytes, not {size}")


def _skip(folder: Path, step: int, damage: _Damaged) -> None:
    warnings.warn(
        f"checkpoint {step} in {folder} is damaged and skipped: {damage}",
        CheckpointWarning,
        stacklevel=3,
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"

"""Batches of given sequences: which ones an update gets, and how they lie in arrays."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vinejax.sampler import Trunks, bucket


def shuffled(count: int, size: int, step: int, seed: Sequence[int]) -> list[int]:
    """The `size` examples of update number `step`, counted from 0.

    They are a stretch of the endless row of shuffled epochs, whose order follows from `seed`.
    """
    at = range(step * size, (step + 1) * size)
    orders = {
        epoch: np.random.default_rng([*seed, epoch]).permutation(count)
        for epoch in {i // count for i in at}
    }
    return [int(orders[i // count][i % count]) for i in at]


def padded(
    sequences: Sequence[np.ndarray], prompt_lengths: Sequence[int], width: int = 0
) -> dict[str, np.ndarray]:
    """Arrays [N, T] of tokens and of what is response, [N] of lengths; index t means token t.

    T is a bucket that holds `width` tokens, or else the longest sequence.
    """
    length = np.array([len(s) for s in sequences], np.int32)
    first = np.array(prompt_lengths, np.int32)
    width = bucket(width or int(length.max()))
    at = np.arange(width)
    return {
        "tokens": Trunks.of(sequences).padded(len(sequences), width),
        "length": length,
        "is_response": (at >= first[:, None]) & (at < length[:, None]),
    }


class Placement(NamedTuple):
    """Where each of N sequences lies in `rows` rows."""

    row: np.ndarray  # int64 [N]
    begin: np.ndarray  # int64 [N]
    segment: np.ndarray  # int64 [N], from 1 on; tells the sequences of a row apart
    rows: int


def place(length: np.ndarray, width: int, most: int, devices: int = 1) -> Placement:
    """Sequences one behind the other in rows of `width` tokens.

    `most` is the micro-batch, in rows; data x fsdp `devices` share it. The number of rows is
    rounded up a little, so that few different ones are compiled.
    """
    bins = first_fit(length, width)
    count = min(len(length), _row_count(len(bins), most, devices))
    if count == len(length):
        bins = [[n] for n in range(count)]
    row, begin, segment = (np.zeros(len(length), np.int64) for _ in range(3))
    for number, members in enumerate(bins):
        ends = np.cumsum(length[members])
        row[members], segment[members] = number, np.arange(1, len(members) + 1)
        begin[members] = ends - length[members]
    return Placement(row, begin, segment, count)


def packed(rows: dict[str, np.ndarray], placed: Placement) -> dict[str, np.ndarray]:
    """Arrays of packed rows; `segments` and `at` are as `update.Batch` has them.

    `rows` are arrays as `padded` makes them, and others [N, T] beside them.
    """
    length, shape = rows["length"], (placed.rows, rows["tokens"].shape[1])
    columns = {name: column for name, column in rows.items() if name != "length"}
    columns["segments"] = np.broadcast_to(placed.segment[:, None], rows["tokens"].shape)
    out = {name: np.zeros(shape, column.dtype) for name, column in columns.items()}
    for n, (row, begin) in enumerate(zip(placed.row, placed.begin, strict=True)):
        for name, column in columns.items():
            out[name][row, begin : begin + length[n]] = column[n, : length[n]]
    total = np.bincount(placed.row, weights=length, minlength=placed.rows)
    out["segments"] = out["segments"].astype(np.int32)
    return out | {"length": total.astype(np.int32), "at": indices(out["is_response"])}


def unpacked(packed: np.ndarray, placed: Placement, length: np.ndarray) -> np.ndarray:
    """A column of packed rows, [R, T], by sequence again, [N, T]; 0 behind each one's length."""
    out = np.zeros((len(length), packed.shape[1]), packed.dtype)
    for n, (row, begin) in enumerate(zip(placed.row, placed.begin, strict=True)):
        out[n, : length[n]] = packed[row, begin : begin + length[n]]
    return out


def first_fit(length: Sequence[int] | np.ndarray, width: int) -> list[list[int]]:
    """Which sequences share a row of `width` tokens: longest first, each where it fits first."""
    bins: list[list[int]] = []
    room = np.zeros(len(length), np.int64)
    for n in np.argsort(-np.asarray(length), kind="stable").tolist():
        fits = np.flatnonzero(room[: len(bins)] >= length[n])
        if len(fits) == 0:
            room[len(bins)] = width
            bins.append([])
            fits = [len(bins) - 1]
        bins[fits[0]].append(n)
        room[fits[0]] -= length[n]
    return bins


def _row_count(least: int, most: int, devices: int) -> int:
    """A number of rows that fits micro-batches and devices: eight to a factor of two."""
    if least > most:
        return -(-least // most) * most
    step = max(devices, (1 << least.bit_length()) // 16)
    step = -(-step // devices) * devices
    return min(most, -(-least // step) * step)


def indices(is_response: np.ndarray) -> np.ndarray:
    """int32 [N, M]: where each row's response tokens are, filled up with 0.

    M is one of eight lengths, so that few are compiled.
    """
    width = is_response.shape[1]
    step = max(1, width // 8)
    most = int(is_response.sum(axis=1).max(initial=1))
    at = np.zeros((len(is_response), min(width, -(-most // step) * step)), np.int32)
    for row, mask in zip(at, is_response, strict=True):
        found = np.flatnonzero(mask)
        row[: len(found)] = found
    return at

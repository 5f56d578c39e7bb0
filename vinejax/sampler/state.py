"""What the jitted loop carries: slots, rows, caches, job tables, logs.

Letters as in `decode`; further P places of a row (each holds a trunk), S cells of a place, J jobs,
N trunks of the bank, C steps of a chunk.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt32

from vinejax import policy
from vinejax.sampler import decode
from vinejax.sampler.decode import Cache, Ring
from vinejax.sampler.records import Layout

IDLE, ACTIVE, PARKED = 0, 1, 2  # a parked slot has filled its ring and waits to be re-rooted
NO_TRUNK = -1


class Table(NamedTuple):
    """What the engine knows of each job; the jobs of a trunk are neighbours."""

    prefix_length: Int[Array, "J"]
    first_token: Int[Array, "J"]  # the last token of the prefix: the first one fed
    stop_state: Int[Array, "J"]  # of the stop automaton after the response part of the prefix
    offset: Int[Array, "J"]  # tokens that the job has drawn before (more than 0 after re-rooting)
    limit: Int[Array, "J"]  # tokens it may still draw; at least 1
    work: Int[Array, "J"]  # tokens that this and the later jobs of its trunk are expected to draw
    key: UInt32[Array, "J 2"]


class Queue(NamedTuple):
    """The jobs of each trunk in the bank: from start[n] to end[n] - 1; none if they are equal."""

    start: Int[Array, "N"]
    end: Int[Array, "N"]


class Stop(NamedTuple):
    """The stop automaton on the device."""

    table: Int[Array, "states V"]  # the state after one more token
    matched: Int[Array, ""]  # the absorbing state of a match


class State(NamedTuple):
    """Everything a chunk hands to the next one; donated."""

    trunks: Cache  # rows: R, cells: P * S
    ring: Ring
    next_job: Int[Array, "N"]  # of each trunk; whatever row asks next gets it
    trunk: Int[Array, "R P"]  # the trunk in each place, NO_TRUNK at first
    status: Int[Array, "R U"]
    place: Int[Array, "R U"]  # which of its row's trunks a slot grows from
    job: Int[Array, "R U"]
    token: Int[Array, "R U"]  # to be fed next
    drawn: Int[Array, "R U"]  # tokens since the slot took its job
    stop_state: Int[Array, "R U"]
    full_cell: Int[Array, "R U"]  # of a parked slot: the ring cell it wrote last
    clock: Int[Array, ""]  # steps so far; clock modulo T is the ring cell of the next one


class Log(NamedTuple):
    """What every slot drew in every step of a chunk; job is -1 where a slot had none."""

    job: Int[Array, "C B"]
    index: Int[Array, "C B"]  # of the token in its continuation
    token: Int[Array, "C B"]
    logprob: Float[Array, "C B"]
    logprob_full: Float[Array, "C B"]
    finish: Int[Array, "C B"]


class Report(NamedTuple):
    """What the host must know to go on."""

    steps: Int[Array, ""]
    active: Int[Array, ""]
    parked: Int[Array, ""]


@partial(jax.jit, static_argnames=("config", "layout", "cells"))
def init(config: policy.LlamaConfig, layout: Layout, cells: int, queue: Queue) -> State:
    """Empty rows and slots, all jobs of `queue` waiting; `cells` is the length of one place."""
    rows, slots, places = layout.rows, layout.slots, layout.trunks_per_row
    per_slot = {
        name: jnp.zeros((rows, slots), jnp.int32)
        for name in ("status", "place", "job", "token", "drawn", "stop_state", "full_cell")
    }
    return State(
        trunks=decode.empty_rows(config, rows, places * cells),
        ring=decode.empty_ring(config, rows * slots, layout.ring),
        next_job=jnp.array(queue.start, copy=True),  # the state is donated, the queue is not
        trunk=jnp.full((rows, places), NO_TRUNK, jnp.int32),
        clock=jnp.int32(0),
        **per_slot,
    )


def empty_log(layout: Layout) -> Log:
    """A log of a chunk in which no slot had a job."""
    shape = (layout.chunk, layout.rows * layout.slots)
    whole, real = jnp.full(shape, -1, jnp.int32), jnp.zeros(shape, jnp.float32)
    return Log(whole, whole, whole, real, real, whole)

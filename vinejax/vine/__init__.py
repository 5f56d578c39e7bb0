"""Monte Carlo values of a response's intermediate states: which states, and what they are worth."""

from vinejax.vine.plan import carried, next_states
from vinejax.vine.pool import Pool, PrefixTree
from vinejax.vine.states import Nodes, Steps, nodes_of, states_every, steps_of_tokens
from vinejax.vine.values import Values, values

__all__ = [
    "Nodes",
    "Pool",
    "PrefixTree",
    "Steps",
    "Values",
    "carried",
    "next_states",
    "nodes_of",
    "states_every",
    "steps_of_tokens",
    "values",
]

"""Monte Carlo values of a response's intermediate states: which states, and what they are worth."""

from vinejax.vine.states import Nodes, Steps, nodes_of, states_every, steps_of_tokens
from vinejax.vine.values import Values, values

__all__ = ["Nodes", "Steps", "Values", "nodes_of", "states_every", "steps_of_tokens", "values"]

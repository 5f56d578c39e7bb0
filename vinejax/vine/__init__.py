"""Monte Carlo values of the intermediate states of a response: which states, which rollouts, what they are worth."""

from vinejax.vine.states import Nodes, Steps, nodes_of, states_every, steps_of_tokens
from vinejax.vine.values import Values, values

__all__ = ["Nodes", "Steps", "Values", "nodes_of", "states_every", "steps_of_tokens", "values"]

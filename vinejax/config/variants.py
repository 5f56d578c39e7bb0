"""What another method changes in a configuration of VinePPO, and nothing else."""

from dataclasses import replace

from vinejax.config.fields import Config

# Passes over the data that the authors give the methods which train once a round.
EPOCHS = {"restem": 8, "dpo_positive": 3}
# The paper does not say whether the advantages of these were whitened; their definitions do not.
NOT_WHITENED = ("grpo", "rloo")


def with_algorithm(config: Config, algorithm: str) -> Config:
    """`config`, one of VinePPO, with another method and the numbers that the paper gives it.

    Everything that methods are compared under stays: start, episodes, sampling, evaluation. Numbers
    that depend on the set-up, too, are in `experiments.configs`. An unknown name is only set:
    `validate` reports it.
    """
    config = replace(config, algorithm=algorithm)
    if algorithm in NOT_WHITENED:
        config = replace(config, advantages=replace(config.advantages, whiten=False))
    if algorithm in EPOCHS:
        config = replace(config, update=replace(config.update, epochs=EPOCHS[algorithm]))
    if algorithm == "dpo_positive":  # which counts pairs: as many sequences in memory as before
        given = config.update.microbatch
        half = max(1, given // 2) if given else 0
        config = replace(config, update=replace(config.update, microbatch=half))
    return config

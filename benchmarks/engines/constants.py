"""What the engines have in common, whatever library they run on."""

EOS = 2  # the lists of jobs alone say when a job ends
EMBEDDING = 0.02  # standard deviation of tied embeddings


def norm_weight(hidden: int, logit_spread: float) -> float:
    """The final norm's weight that gives logits the standard deviation `logit_spread`."""
    return logit_spread / (EMBEDDING * hidden**0.5)

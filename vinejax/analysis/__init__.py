"""Why a run works: predicted values against true ones, next steps ranked, accuracy against cost."""

from vinejax.analysis.given import Valued, values_of
from vinejax.analysis.run import Asked, analyse

__all__ = ["Asked", "Valued", "analyse", "values_of"]

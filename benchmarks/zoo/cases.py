"""Inputs for the models of the zoo, each a case with a name.

Imported by: benchmarks.zoo.  Imports: benchmarks.zoo.recipes, recipes_wider; numpy, tribunus.errors.

Cases of a model differ in shape and, where the graph has several paths, in path.  Making a case twice gives the same
bits.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from benchmarks.zoo.recipes import CORE_AND_REFUSE, Feeds, Recipes
from benchmarks.zoo.recipes_wider import WIDER
from tribunus.errors import UsageError

RECIPES: Final[Recipes] = {**CORE_AND_REFUSE, **WIDER}

__all__ = ["RECIPES", "Feeds", "case_names", "make_case", "models_with_cases"]


def models_with_cases() -> tuple[str, ...]:
    return tuple(RECIPES)


def case_names(model: str) -> tuple[str, ...]:
    """Names of the cases of ``model``, none if it has no recipe."""
    return tuple(RECIPES.get(model, {}))


def make_case(model: str, case: str) -> Feeds:
    """Inputs of one case by input name.  Raises UsageError for a name that is not in the tables."""
    if case not in RECIPES.get(model, {}):
        raise UsageError(f"no case {case!r} of model {model!r}", remedy="`python -m benchmarks.zoo list` names them")
    # rows in order: a transposed view would come back from its file as one
    return {name: np.asarray(array, order="C") for name, array in RECIPES[model][case]().items()}

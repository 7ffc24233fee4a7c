"""The frontend: ONNX in (safe loading, lowering) and out.

Imported by: certification, cli, certify.  Importing it does not import onnx; the parsing process and ``export`` do.
"""

from __future__ import annotations

from tribunus.frontend.bindings import Bound, DimBindings, bindings_from_inputs, parse_dim_options
from tribunus.frontend.facts import ModelFacts, TensorFact
from tribunus.frontend.model import ImportedModel, import_model, inspect_model

__all__ = [
    "Bound",
    "DimBindings",
    "ImportedModel",
    "ModelFacts",
    "TensorFact",
    "bindings_from_inputs",
    "import_model",
    "inspect_model",
    "parse_dim_options",
]

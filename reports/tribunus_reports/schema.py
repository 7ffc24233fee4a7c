"""The published schema of report.json, as a file of this package: ``report.schema.json``.

Imported by: command, tests.  Imports: codec, model.

``python -m tribunus_reports.schema`` prints what the file must be.
"""

from __future__ import annotations

import json
from importlib.resources import files

from tribunus_reports.codec import schema_of
from tribunus_reports.model import SCHEMA, Report


def published() -> str:
    """Text of the schema file."""
    return files("tribunus_reports").joinpath("report.schema.json").read_text(encoding="utf-8")


def generated() -> str:
    """The schema that follows from the model's types."""
    schema = schema_of(Report, SCHEMA)
    definitions = schema["$defs"]
    if isinstance(definitions, dict) and isinstance(top := definitions["Report"], dict):
        properties = top["properties"]
        if isinstance(properties, dict):
            properties["schema"] = {"const": SCHEMA}
    return json.dumps(schema, indent=1) + "\n"


if __name__ == "__main__":
    print(generated(), end="")

"""The name of the reference backend's code format, which both halves use.

Imported by: backend, replay.
"""

from __future__ import annotations

from tribunus.plan.code import CodeFormat

FORMAT = CodeFormat("numpy")

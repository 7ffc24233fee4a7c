"""The version of this distribution.

Imported by: every room that names it in documents.  Imports: nothing.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"

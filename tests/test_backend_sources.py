"""What an edited backend built before is not used again."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from tribunus.candidates.registry import Registry
from tribunus.certification.bench import backend_sources


def test_the_digest_of_a_backend_changes_with_any_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "backend.py").write_text("A = 1\n")
    (tmp_path / "templates" / "gemm.py").write_text("B = 1\n")
    module = ModuleType("edited_backend")
    module.__file__ = str(tmp_path / "backend.py")
    monkeypatch.setitem(sys.modules, "edited_backend", module)
    kind = type("Edited", (), {"__module__": "edited_backend"})
    registry = Registry({"edited": kind()})
    before = backend_sources(registry)
    assert [name for name, _ in before] == ["edited"]
    assert backend_sources(registry) == before
    (tmp_path / "templates" / "gemm.py").write_text("B = 2\n")
    assert backend_sources(registry) != before

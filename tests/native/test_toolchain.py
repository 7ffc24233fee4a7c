"""Finding the compiler: what is found, and how its absence is said."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path

import pytest
from tribunus_native.toolchain import Cpu, Unavailable, find_toolchain, require_toolchain

from tribunus.errors import ToolError

from .conftest import Lab


def test_the_compiler_is_named_by_version_and_digest(lab: Lab) -> None:
    assert lab.toolchain.zig.name == "zig"
    assert lab.toolchain.version.count(".") == 2
    assert len(lab.toolchain.digest) == 64 and int(lab.toolchain.digest, 16) > 0


def test_a_missing_package_is_a_reason_and_not_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = find_toolchain()
    assert isinstance(found, Unavailable) and "ziglang" in found.reason
    with pytest.raises(ToolError, match="ziglang") as failure:
        require_toolchain()
    assert "pip install" in failure.value.remedy


def test_a_package_without_a_working_binary_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spec = importlib.machinery.ModuleSpec("ziglang", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    found = find_toolchain()
    assert isinstance(found, Unavailable) and "no zig binary" in found.reason
    (tmp_path / "zig").write_text("not a program", encoding="utf-8")
    found = find_toolchain()
    assert isinstance(found, Unavailable) and "does not run" in found.reason


def test_facts_of_the_instruction_sets_are_consistent() -> None:
    for cpu in Cpu:
        assert not cpu.has_avx512 or (cpu.is_x86 and cpu.native_lanes == 16 and cpu.vector_registers == 32)
        assert not cpu.has_vnni or cpu.has_avx512

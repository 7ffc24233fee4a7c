"""Flat code: what the reader accepts, what it refuses, and that builds repeat byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from tribunus_native.flat import BuildFailed, build_flat, read_flat
from tribunus_native.toolchain import Contraction, Cpu, compile_argv, compiler_environment, link_argv

from tribunus.errors import InternalError

from .conftest import Lab

HEAD = """
#include <stdint.h>
__attribute__((section(".text.kernel"), visibility("default"), used)) void kernel(
    void *const *buffers, const int64_t *params, int64_t part, int64_t parts) {
"""
GOOD = (
    HEAD.replace("__attribute__", "static int twice(int x) { return 2 * x; }\n__attribute__", 1)
    + "float *y = buffers[0]; y[0] = (float)twice((int)params[0]) * 0.333f; }"
)


def test_two_builds_in_different_folders_give_identical_bytes(lab: Lab, tmp_path: Path) -> None:
    first = build_flat(GOOD, lab.cpu, Contraction.FUSED, lab.toolchain, tmp_path / "a")
    second = build_flat(GOOD, lab.cpu, Contraction.FUSED, lab.toolchain, tmp_path / "other" / "longer name")
    assert first == second
    assert 0 < first.text_size <= len(first.code)


def test_contraction_changes_the_bytes(lab: Lab) -> None:
    source = HEAD + "float *y = buffers[0]; y[0] = y[1] * y[2] + y[3]; }"
    fused = lab.build(source, lab.cpu, Contraction.FUSED)
    separate = lab.build(source, lab.cpu, Contraction.SEPARATE)
    assert fused.code != separate.code
    assert fused.source_digest == separate.source_digest


def test_memory_functions_of_the_runtime_are_linked_where_a_kernel_needs_them(lab: Lab) -> None:
    source = HEAD + "__builtin_memset(buffers[0], 7, (unsigned long)params[0]); }"
    plain = lab.build(HEAD + "(void)part; }", lab.cpu)
    assert lab.build(source, lab.cpu).text_size > plain.text_size + 8


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("this is no C; }", "failed"),
        ("extern float expf(float); float *y = buffers[0]; y[0] = expf(y[1]); }", "expf"),
        ("static int64_t calls; calls += part; ((int64_t *)buffers[0])[0] = calls; }", ".bss"),
        ("static int64_t calls = 3; calls += part; ((int64_t *)buffers[0])[0] = calls; }", ".data"),
        (
            # the compiler rewrites a table it fully sees to relative offsets: this one it does not
            'static const char a[] = "a", b[] = "b"; static const char *const table[2] = {a, b}; '
            '__asm__ volatile("" : : "r"(table) : "memory"); }',
            "reloc|data.rel",
        ),
    ],
    ids=["no C", "library call", "static zero data", "static data", "table of pointers"],
)
def test_code_that_cannot_be_flat_is_refused(lab: Lab, body: str, word: str) -> None:
    with pytest.raises(BuildFailed, match=word) as refused:
        lab.build(HEAD + body, lab.cpu)
    assert isinstance(refused.value, InternalError)
    assert refused.value.remedy


def test_bytes_that_are_no_linked_kernel_are_refused() -> None:
    for junk in (b"", b"\x7fELF", b"\x7fELF\x02\x01" + bytes(200)):
        with pytest.raises(BuildFailed):
            read_flat(junk, Cpu.ZNVER4)


def test_arguments_name_the_instruction_set_and_never_this_machine() -> None:
    for cpu in Cpu:
        words = compile_argv(cpu, Contraction.SEPARATE)
        assert "-ffp-contract=off" in words
        assert not any("native" in word or "fast-math" in word or "Ofast" in word for word in words)
    assert "-mcmodel=tiny" in compile_argv(Cpu.AARCH64, Contraction.FUSED)
    assert "-pie" in link_argv()


def test_the_compiler_sees_only_the_private_cache(tmp_path: Path) -> None:
    environment = compiler_environment(tmp_path)
    assert environment["ZIG_GLOBAL_CACHE_DIR"] == environment["ZIG_LOCAL_CACHE_DIR"] == str(tmp_path)

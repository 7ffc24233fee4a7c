"""Flat code becomes words that a walker calls; bytes that are no flat code are refused."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from tribunus.devices.cpu import Steps, Walker, encode_steps, step_of
from tribunus.devices.flat import REPLAYER
from tribunus.errors import DriverError, SchemaError
from tribunus.plan.code import Code, CodeFormat, Recipe
from tribunus.runtime.replayers import OWN_FORMATS

RETURN_PART = {
    "x86_64": "488b07" "488b0e" "4801d1" "488908" "c3",  # *(i64 *)buffers[0] = params[0] + part
    "aarch64": "000040f9" "210040f9" "2100028b" "010000f9" "c0035fd6",
}  # fmt: skip


def code_of(data: bytes, text_size: int | None = None) -> Code:
    facts = () if text_size is None else (("text_size", text_size),)
    return Code(CodeFormat("flat"), data, facts)


def test_each_part_is_one_call_with_its_own_number() -> None:
    data = bytes.fromhex(RETURN_PART[os.uname().machine])
    bound = REPLAYER.bind(code_of(data, len(data)), Recipe((), ()))
    cell = ctypes.c_int64(0)
    words = bound.launch([ctypes.addressof(cell)], [-40], 3)
    assert [(w.a2, w.a3) for w in words] == [(0, 3), (1, 3), (2, 3)]
    seen = []
    for word in words:
        Walker().run(Steps(encode_steps([step_of(word)])))
        seen.append(cell.value)
    assert seen == [-40, -39, -38]
    bound.close()


@pytest.mark.parametrize("text_size", [0, 5])
def test_text_that_is_empty_or_longer_than_the_bytes_is_refused(text_size: int) -> None:
    with pytest.raises(DriverError, match="no flat code"):
        REPLAYER.bind(code_of(b"\xc3", text_size), Recipe((), ()))
    with pytest.raises(SchemaError, match="text_size"):
        REPLAYER.bind(code_of(b"\xc3"), Recipe((), ()))
    with pytest.raises(DriverError, match="no flat code"):
        REPLAYER.bind(Code(CodeFormat("cubin"), b"\xc3", (("text_size", 1),)), Recipe((), ()))


def test_the_table_of_formats_names_it() -> None:
    assert REPLAYER.format == "flat"
    assert OWN_FORMATS["flat"] == "tribunus.devices.flat:REPLAYER"


def test_loading_it_brings_in_no_numpy_and_no_compiler() -> None:
    program = (
        "import sys; import tribunus.devices.flat; "
        "print(sorted({'numpy', 'subprocess', 'capstone', 'onnx', 'ziglang'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"

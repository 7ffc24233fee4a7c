"""What a machine is called, from what its operating system lists."""

from __future__ import annotations

import os

import pytest

from tribunus.canon import encode
from tribunus.errors import DeviceError
from tribunus.targets.detect import cpu_flags, facts_to_json, host_arch, level_of, machine_facts
from tribunus.targets.target import CPU_LEVELS

AMD = frozenset(("sse4a", "clzero"))
CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
flags\t\t: fpu sse4_2 ssse3 popcnt cx16

processor\t: 1
flags\t\t: fpu
"""


def test_flags_are_those_of_the_first_processor() -> None:
    assert cpu_flags(CPUINFO) == {"fpu", "sse4_2", "ssse3", "popcnt", "cx16"}
    assert cpu_flags("Features\t: fp asimd\n") == {"fp", "asimd"}
    assert cpu_flags("nothing here\n") == frozenset()


@pytest.mark.parametrize("level", [name for name in CPU_LEVELS if name.startswith(("x86", "znver"))])
def test_a_machine_with_exactly_the_features_of_a_level_has_it_and_no_higher(level: str) -> None:
    assert level_of("x86_64", CPU_LEVELS[level] | AMD) == level


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4", "znver4"])
def test_one_missing_feature_takes_the_level_away(level: str) -> None:
    for feature in CPU_LEVELS[level]:
        flags = AMD.union(*CPU_LEVELS.values()) - {feature}
        assert feature not in CPU_LEVELS[level_of("x86_64", flags)]


def test_another_maker_s_processor_with_the_same_extensions_is_not_taken_for_zen() -> None:
    assert level_of("x86_64", CPU_LEVELS["znver4"]) == "x86-64-v4"


def test_an_unknown_machine_has_no_level() -> None:
    assert level_of("aarch64", frozenset(("asimd", "fp"))) == "aarch64"
    for machine, flags in (("riscv64", frozenset(("v",))), ("x86_64", frozenset(("sse2",)))):
        with pytest.raises(DeviceError, match="no named cpu level"):
            level_of(machine, flags)


def test_facts_of_this_machine_are_a_document() -> None:
    facts = machine_facts()
    assert facts.machine == os.uname().machine
    assert facts.processors == len(os.sched_getaffinity(0))
    assert set(facts.features) == cpu_flags()
    assert facts.last_level_cache > 0
    assert encode(facts_to_json(facts)) == encode(facts_to_json(machine_facts()))
    assert host_arch() == level_of(facts.machine, frozenset(facts.features))

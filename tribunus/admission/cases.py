"""The cases of a signature: vectors with their goldens, held against the two gates before any candidate is judged.

Imported by: certification, tests.  Imports: oracle, candidates.  Goldens are computed once, when first asked for, and
shared by all candidates of the signature.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from threadpoolctl import threadpool_limits

from tribunus.admission.context import Judgement
from tribunus.admission.receipt import CaseRecord, Figure, Reason
from tribunus.admission.shelf import Forgetful, Keeper, Shelf, Shelved
from tribunus.admission.suite import golden_identity
from tribunus.candidates.model import Signature
from tribunus.canon import Digest, Json, digest_bytes, digest_of
from tribunus.oracle.families import VectorFamily
from tribunus.oracle.frozen import Worked
from tribunus.oracle.gates import CaseTrust, SuiteTrust, trust_alone, trust_suite
from tribunus.oracle.golden import golden_key
from tribunus.oracle.running import OutputGolden, golden_with_budget
from tribunus.oracle.vectors import Descriptor, captured, is_heavy, materialise, vector_set
from tribunus.oracle.verdict import Failure, OutputVerdict, judge
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Symbol
from tribunus.phaseir.program import Array, Program

_SENTENCES: Final = {
    Failure.MISSING: ("output missing", "an output is missing or has another dtype or shape"),
    Failure.CLASS: ("class differs", "NaN, infinity or finiteness differ from the golden"),
    Failure.BITS: ("bits differ", "moved data is not the same bytes"),
    Failure.UNEQUAL: ("value differs", "an element that must be exact differs"),
    Failure.BUDGET: ("element beyond its budget", "an element is further from the golden than its budget"),
    Failure.CHOICE: ("choice differs", "an index was chosen that the values do not justify"),
    Failure.BIAS: ("errors have a sign", "the mean signed error is larger than rounding to nearest allows"),
    Failure.RMS: ("errors too large on average", "the root mean square of error / budget is too large"),
    Failure.SHARE: ("too many large errors", "too many elements use over half of their budget"),
}
_DRAWN: Final = (VectorFamily.RAND, VectorFamily.POS, VectorFamily.HEAVY, VectorFamily.EXACT)
_ORDER_SENSITIVE: Final = (VectorFamily.RAND, VectorFamily.POS)
TILE: Final = 16
"""Floats of the widest vector register."""
LARGE: Final = 1 << 16
"""Elements of the largest value from which goldens are worth threads."""
HUGE: Final = 1 << 22
"""Elements from which goldens are worked out one after another, each with all threads: memory is what is short."""
MOST_WORKERS: Final = 4
SHAPE_VECTORS: Final = 2
LAYOUT_VECTORS: Final = 1
REPLAY_VECTORS: Final = 3


@dataclass(frozen=True)
class VectorCase:
    """One vector with its golden.  trust: what the gates said."""

    vector: Shelved
    trust: CaseTrust

    @cached_property
    def digest(self) -> Digest:
        """Of the inputs; computed with the first judgement, when they are at hand anyway."""
        return _digest_inputs(self.vector.inputs)

    @property
    def descriptor(self) -> Descriptor:
        """What names the vector."""
        return self.vector.descriptor

    @property
    def inputs(self) -> Mapping[int, Array]:
        """Arrays by value id, as stored."""
        return self.vector.inputs

    @property
    def goldens(self) -> tuple[OutputGolden, ...]:
        """Of every output."""
        return self.vector.goldens

    @property
    def dims(self) -> Mapping[str, int]:
        """Values of the signature's symbols."""
        return dict(self.descriptor.bindings)

    @property
    def name(self) -> str:
        """Family, seed and dims."""
        return str(self.descriptor)

    @property
    def counted(self) -> bool:
        """Whether it could say no."""
        return self.trust.counted

    def judge(self, outputs: Mapping[int, Array], terms: str) -> Judgement:
        """Hold outputs against the golden."""
        goldens = self.goldens
        verdict = judge(outputs, goldens)
        worst = verdict.worst
        record = CaseRecord(
            vector=str(self.descriptor.family.value)
            + (f"^{self.descriptor.exponent}" if self.descriptor.exponent else "")
            + (f":{self.descriptor.name}" if self.descriptor.name else ""),
            seed=self.descriptor.seed,
            dims=self.descriptor.bindings,
            terms=terms,
            elements=sum(output.elements for output in verdict.outputs),
            counted=self.counted,
            trust="" if self.counted else "would accept: " + ", ".join(self.trust.why or ("nothing was refused",)),
            share=verdict.ratio,
            error_ulp=worst.err_ulp,
            budget_ulp=worst.budget_ulp,
            index=worst.worst,
            got=repr(worst.candidate_value),
            golden=repr(worst.golden_value),
            inputs=self.digest,
            expected=digest_of([golden.golden_digest for golden in goldens]),
        )
        return Judgement(record, None if verdict.accepted else self._reason(worst, terms))

    def _reason(self, worst: OutputVerdict, terms: str) -> Reason:
        failure = worst.failure or Failure.MISSING
        kind, sentence = _SENTENCES[failure]
        place = f"output {worst.id}, element {list(worst.worst)}, vector {self.name}, {terms}"
        figures = [Figure("error", f"{worst.err_ulp:.4g} ulp", f"{worst.budget_ulp:.4g} ulp")]
        if failure in (Failure.CLASS, Failure.UNEQUAL, Failure.BITS, Failure.CHOICE):
            figures = [Figure("value", repr(worst.candidate_value), repr(worst.golden_value))]
        elif failure is Failure.BIAS:
            figures = [Figure("mean signed error", f"{worst.bias:.3f} ulp", "0.1 ulp")]
        elif failure is Failure.RMS:
            figures = [Figure("rms of error / budget", f"{worst.rms:.3f}", "see the family's bound")]
        elif failure is Failure.SHARE:
            figures = [Figure("share above half the budget", f"{worst.share:.4f}", "0.001")]
        return Reason(kind, f"{sentence}: {place}", tuple(figures))


class CaseBook:
    """Cases of one signature.

    captured_operands: real operands by value id, at the dims they were captured at.  keeper: where goldens lie that
    memory is too small for, and those of earlier sessions.
    """

    def __init__(
        self,
        signature: Signature,
        captured_operands: Sequence[Mapping[int, Array]] = (),
        keeper: Keeper | None = None,
    ) -> None:
        self._signature = signature
        self._captured = tuple(captured_operands)
        self._shelf = Shelf(keeper or Forgetful())
        self._made: dict[Descriptor, VectorCase] = {}

    def oracle_cases(self) -> Sequence[VectorCase]:
        """Every vector at the expected dims, and the captured operands."""
        return self._oracle

    def shape_cases(self) -> Sequence[VectorCase]:
        """Vectors at the other representatives; at the declared shape where all dims are numbers."""
        return self._shape

    def layout_cases(self) -> Sequence[VectorCase]:
        """The first counted vector: a misplaced element is beyond its budget."""
        telling = (case for case in self._oracle if case.counted and _is_finite(case))
        return list(itertools.islice(telling, LAYOUT_VECTORS)) or list(self._oracle[:LAYOUT_VECTORS])

    def replay_cases(self) -> Sequence[VectorCase]:
        """Ordinary and positive vectors: sums whose bits depend on their order."""
        chosen = [case for case in self._oracle if case.descriptor.family in _ORDER_SENSITIVE]
        return chosen[:REPLAY_VECTORS] or list(self._oracle[:REPLAY_VECTORS])

    def timing_case(self) -> VectorCase:
        """Ordinary data."""
        return self.replay_cases()[0]

    def zeros(self) -> Mapping[int, Array]:
        """The timing case with every floating point activation zero."""
        inputs = dict(self.timing_case().inputs)
        for value in self._signature.inputs:
            if self._signature.type_of(value).dtype.is_float:
                inputs[value] = np.zeros_like(inputs[value])
        return inputs

    def representatives(self) -> Sequence[Mapping[str, int]]:
        """Expected, smallest and largest dims, an odd one in between, one past a tile; corners where dims differ."""
        symbols = self._signature.program.symbols
        points = [{s.name: s.opt for s in symbols}]
        if symbols:
            points += [{s.name: s.lo for s in symbols}, {s.name: s.hi for s in symbols}]
            points.append({s.name: _odd_between(s) for s in symbols})
            points.append({s.name: _past_a_tile(s) for s in symbols})
        if len(symbols) > 1:
            points.append({s.name: s.hi if i % 2 else s.lo for i, s in enumerate(symbols)})
            points.append({s.name: s.lo if i % 2 else s.hi for i, s in enumerate(symbols)})
        return [dict(point) for point in dict.fromkeys(tuple(p.items()) for p in points)]

    def adversarial(self, family: VectorFamily, seed: int, exponent: int) -> VectorCase:
        """A case that a search draws."""
        bindings = tuple(sorted(self._optimum.items()))
        return self._case(Descriptor(family, seed, bindings, exponent))

    def is_heavy(self) -> bool:
        """Whether a golden costs so much that an adversary should draw few."""
        return is_heavy(self._signature.program, self._optimum)

    def families(self) -> tuple[tuple[VectorFamily, int, int], ...]:
        """Families of the signature's vectors that differ by seed, each with its smallest and largest exponent."""
        exponents: dict[VectorFamily, list[int]] = {}
        for case in self._oracle:
            if case.descriptor.family in _DRAWN:
                exponents.setdefault(case.descriptor.family, []).append(case.descriptor.exponent)
        return tuple((family, min(found), max(found)) for family, found in exponents.items())

    def insensitive(self) -> tuple[int, ...]:
        """Inputs that no counted case depends on."""
        return self._suite.insensitive

    @property
    def _optimum(self) -> dict[str, int]:
        return self._signature.program.scope.optimum()

    @property
    def _oracle(self) -> tuple[VectorCase, ...]:
        return self._prepared[0]

    @property
    def _suite(self) -> SuiteTrust:
        return self._prepared[1]

    @cached_property
    def _prepared(self) -> tuple[tuple[VectorCase, ...], SuiteTrust]:
        signature = self._signature
        chosen = vector_set(signature.program, signature.policy, signature.label, self._optimum)
        vectors = [self._vector(descriptor) for descriptor in chosen]
        for number, operands in enumerate(self._captured):
            bindings = bindings_of(signature.program, operands)
            if bindings is not None:
                vectors.append(self._vector(captured(f"capture {number}", bindings), operands))
        return self._trusted(vectors)

    @cached_property
    def _shape(self) -> tuple[VectorCase, ...]:
        signature = self._signature
        others = list(self.representatives())[1:]
        if not others:
            return tuple([case for case in self._oracle if case.counted][:SHAPE_VECTORS] or self._oracle[:1])
        chosen: list[Descriptor] = []
        for point in others:
            chosen += vector_set(signature.program, signature.policy, signature.label, point)[:SHAPE_VECTORS]
        return self._trusted([self._vector(descriptor) for descriptor in chosen])[0]

    def _case(self, descriptor: Descriptor) -> VectorCase:
        if descriptor not in self._made:
            vector = self._vector(descriptor)
            self._made[descriptor] = VectorCase(vector, trust_alone(vector))
        return self._made[descriptor]

    def _vector(self, descriptor: Descriptor, operands: Mapping[int, Array] | None = None) -> Shelved:
        signature = self._signature
        document: Json = [
            descriptor.to_json(),
            golden_identity(),
            None if operands is None else _digest_inputs(operands),
        ]
        key = golden_key(signature.digest, dict(descriptor.bindings), document, signature.policy.value)
        return Shelved(descriptor, key, self._shelf, lambda: self._work(descriptor, operands))

    def _work(self, descriptor: Descriptor, operands: Mapping[int, Array] | None) -> Worked:
        signature = self._signature
        inputs = materialise(descriptor, signature.program) if operands is None else dict(operands)
        goldens = golden_with_budget(
            signature.program,
            inputs,
            signature.constants,
            signature.policy,
            signature.label,
            descriptor.family,
            bindings=dict(descriptor.bindings),
        )
        return Worked(inputs, goldens)

    def _work_ahead(self, vectors: Sequence[Shelved]) -> None:
        """Large goldens beside each other, because NumPy lets other threads run meanwhile; each with one thread."""
        scope = self._signature.program.scope
        elements = max((scope.bounds(v.type.elements)[1] for v in self._signature.program.values), default=0)
        if not LARGE <= elements <= HUGE or len(vectors) < 2:
            return
        workers = min(MOST_WORKERS, len(os.sched_getaffinity(0)))
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(workers) as pool:
            list(pool.map(lambda vector: len(vector.goldens), vectors))

    def _trusted(self, vectors: Sequence[Shelved]) -> tuple[tuple[VectorCase, ...], SuiteTrust]:
        self._work_ahead(vectors)
        suite = trust_suite(self._signature.program, self._signature.constants, vectors)
        cases = tuple(VectorCase(vector, trust) for vector, trust in zip(vectors, suite.cases, strict=True))
        return cases, suite


def generate_inputs(program: Program, bindings: Mapping[str, int]) -> dict[int, Array]:
    """Ordinary data for a whole program's inputs; integers within the ranges that its ops index with."""
    return materialise(Descriptor(VectorFamily.RAND, 0, tuple(sorted(bindings.items()))), program)


def bindings_of(program: Program, operands: Mapping[int, Array]) -> dict[str, int] | None:
    """Values of the program's symbols for arrays by value id; None where they do not fit."""
    found: dict[str, int] = {}
    for value, array in operands.items():
        shape = program.type_of(value).shape
        if len(shape) != array.ndim:
            return None
        for dim, extent in zip(shape, array.shape, strict=True):
            if isinstance(dim, dims.Sym):
                found.setdefault(dim.name, extent)
    for symbol in program.symbols:
        if found.setdefault(symbol.name, symbol.opt) not in symbol.values():
            return None
    fits = all(dims.evaluate_shape(program.type_of(v).shape, found) == a.shape for v, a in operands.items())
    return found if fits else None


def _is_finite(case: VectorCase) -> bool:
    return all(bool(np.all(np.isfinite(g.value.astype(np.float64)))) for g in case.goldens)


def _odd_between(symbol: Symbol) -> int:
    """A value strictly between the bounds, odd where possible, away from multiples of vector widths."""
    middle = symbol.lo + (symbol.hi - symbol.lo) * 2 // 3
    candidates = [v for v in symbol.values() if v % 2 == 1] or list(symbol.values())
    return min(candidates, key=lambda v: abs(v - middle))


def _past_a_tile(symbol: Symbol) -> int:
    """The smallest value one past a multiple of the widest vector, where there is one; else the smallest odd one."""
    values = symbol.values()
    edges = (v for v in values if v > TILE and v % TILE == 1)
    return next(edges, next((v for v in values if v % 2), symbol.lo))


def _digest_inputs(inputs: Mapping[int, Array]) -> Digest:
    rows: list[Json] = [[value, _digest_array(array)] for value, array in sorted(inputs.items())]
    return digest_of(rows)


def _digest_array(array: Array) -> str:
    return digest_bytes(np.ascontiguousarray(array).tobytes())

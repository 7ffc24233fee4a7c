"""One certification session: from options to reports.  The suites and hooks only call into it.

Imported by: plugin, suites.  Imports: certification, reports.  Knows no pytest.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tribunus.admission.receipt import Check, Receipt, Verdict
from tribunus.candidates.registry import installed_backends
from tribunus.canon import Digest, encode
from tribunus.certification.bench import default_ledger, open_bench
from tribunus.certification.pipeline import Certification, Item
from tribunus.certification.program_check import ProgramReceipt
from tribunus.certification.sealing import Sealed, assemble_region, check_program, choices_document, seal
from tribunus.errors import EnvironmentFault, InputError, InternalError, LoweringError, TribunusError
from tribunus.image.keys import Signer
from tribunus.isolation.program_run import ProgramRun
from tribunus.phaseir.layouts import Layout
from tribunus.planning.assemble import AssembledRegion, Winner
from tribunus.planning.schedule import Demand
from tribunus_certify.adversary import HypothesisAdversary
from tribunus_certify.asking import LONGEST_NAME, Settings, asked, signer_of

NAME_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789._-")


class Runner:
    """Everything of a session.  Raises TribunusError subclasses for whatever cannot be done."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self.settings = settings
        self.say = say
        self.started = datetime.now(UTC)
        self.begin_ns = time.time_ns()
        self.signer: Signer | None = None
        self.sealed: Sealed | None = None
        self.problem: TribunusError | None = None
        self.summary: list[str] = []
        self._region: AssembledRegion | None = None
        self._winners: dict[Demand, Winner] | None = None
        self._program: tuple[tuple[ProgramReceipt, ...], Mapping[str, ProgramRun]] | None = None
        self._ids: dict[tuple[Digest, tuple[Layout, ...]], str] = {}
        self._taken: dict[str, int] = {}
        self._names: dict[tuple[str, str], Digest] = {}
        self._closing = contextlib.ExitStack()
        with contextlib.ExitStack() as closing:
            self.certification = self._prepare(closing)
            self.certification.propose()
            self._closing = closing.pop_all()

    @property
    def stem(self) -> str:
        """File names begin with this: image name, dot, target family."""
        return f"{self.name}.{self.certification.request.target.family}"

    @property
    def name(self) -> str:
        """The image's name: as given, or the model's stem in lower case with other characters as ``-``."""
        given = self.settings.name or self.settings.model.name.removesuffix(".onnx").lower()
        return "".join(c if c in NAME_LETTERS else "-" for c in given).lstrip("._-")[:LONGEST_NAME] or "model"

    @property
    def items(self) -> Sequence[Item]:
        """Every candidate proposed so far."""
        return self.certification.items

    def demand_id(self, demand: Demand) -> str:
        """Short identifier of a demand: its signature's name, and a number from the second of that name on."""
        key = demand.signature.digest, demand.layouts
        known = self._ids.get(key)
        if known is None:
            name = demand.signature.name
            count = self._taken[name] = self._taken.get(name, -1) + 1
            known = self._ids[key] = f"{name}.{count}" if count else name
        return known

    def item_id(self, item: Item) -> str:
        """Signature and candidate: what stands in the brackets of a test id."""
        return f"{self.demand_id(item.demand)}/{self.candidate_id(item)}"

    def candidate_id(self, item: Item) -> str:
        """Short identifier of a candidate among those of its demand, longer where two would collide."""
        candidate = item.candidate
        holder = self._names.setdefault((self.demand_id(item.demand), candidate.name), candidate.digest)
        return candidate.name if holder == candidate.digest else f"{candidate.backend}-{candidate.digest[:16]}"

    def check(self, item: Item, check: Check) -> Receipt:
        """Run one check."""
        return self.certification.check(item, check)

    def probe(self, item: Item) -> None:
        """Decide which candidates of its demand are worth checking, if that was not decided before."""
        self.certification.probe(item)

    def build(self, items: Sequence[Item]) -> None:
        """Build the artifacts of ``items``."""
        self.certification.build(items)

    def more_items(self) -> list[Item]:
        """Items of a further round."""
        return self.certification.next_round()

    def winners(self) -> dict[Demand, Winner]:
        """Winners of all demands; contests are held on the way."""
        if self._winners is None:
            self._winners = self.certification.winners()
        return self._winners

    def region(self) -> AssembledRegion:
        """The assembled region, proved by the plan checker."""
        if self._region is None:
            self._region = assemble_region(self.certification, self.winners())
        return self._region

    def program(self) -> tuple[ProgramReceipt, ...]:
        """Receipts of the program check, every case."""
        if self._program is None:
            self._program = check_program(self.certification, self.region(), self.winners())
        return self._program[0]

    @property
    def region_so_far(self) -> AssembledRegion | None:
        """The region if it was assembled."""
        return self._region

    @property
    def program_so_far(self) -> tuple[ProgramReceipt, ...]:
        """Receipts of the program check if it was held."""
        return () if self._program is None else self._program[0]

    def seal(self) -> Sealed:
        """Sign and write the image and the choices file."""
        self.program()
        if self._program is None:
            raise InternalError("the program check was not held")
        signer = self.signer = self.signer or signer_of(self.settings)
        output = self.settings.output
        self._make_output()
        self.sealed = seal(
            self.certification,
            self.winners(),
            self.region(),
            self._program[1],
            self._program[0],
            name=self.name,
            epoch=self.settings.epoch,
            signer=signer,
            path=output / f"{self.stem}.tci",
        )
        return self.sealed

    def choices(self) -> bytes:
        """The lock file of this certification's selections."""
        return encode(choices_document(self.certification, self.winners())) + b"\n"

    def is_complete(self) -> bool:
        """Whether every demand has an admitted candidate."""
        return not self.certification.unserved()

    def command(self) -> str:
        """The command line, for people."""
        program = Path(sys.argv[0])
        name = program.parent.name if program.name == "__main__.py" else program.name
        return shlex.join([name, *sys.argv[1:]])

    def require_signer(self) -> None:
        """That the image can be signed: better known before the checks than after them."""
        self.signer = signer_of(self.settings)

    def close(self) -> None:
        """End children, release the ledger, remove work folders; once."""
        self._closing.close()

    def _prepare(self, closing: contextlib.ExitStack) -> Certification:
        settings = self.settings
        registry = installed_backends(settings.backends)
        ask = asked(settings)
        ledger = settings.ledger or default_ledger()
        bench = open_bench(registry, ask.request.target, ledger, self.say, HypothesisAdversary())
        closing.callback(bench.close)
        try:
            certification = Certification(ask.request, bench, ask.captured)
        except (LoweringError, InputError) as error:
            if ask.mismatch:
                raise InputError(f"{ask.mismatch}; {error.detail}") from error
            raise
        closing.callback(certification.close)
        return certification

    def _make_output(self) -> None:
        try:
            self.settings.output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EnvironmentFault(f"cannot make the folder {self.settings.output}: {error.strerror}") from None


def describe(receipt: Receipt) -> str:
    """One line for people."""
    if receipt.verdict is Verdict.PASSED or receipt.reason is None:
        return f"{receipt.check.value}: passed"
    figures = "; ".join(f"{f.what} {f.seen}, allowed {f.allowed}" for f in receipt.reason.figures)
    return f"{receipt.check.value}: {receipt.reason.text}" + (f" ({figures})" if figures else "")

"""From a loaded model and resolved dims to a program.

Imported by: child.  Imports: graph, lowering, rules, phaseir.  Knows no protobuf.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tribunus.errors import DimError, LoweringError
from tribunus.frontend.bindings import Profile
from tribunus.frontend.graph import Model, Node, NodeId, Subgraph
from tribunus.frontend.lowering import Lowering, Operand, Site
from tribunus.frontend.pruning import prune
from tribunus.frontend.rules import RULES
from tribunus.phaseir import dims
from tribunus.phaseir.ops import TypeRuleError
from tribunus.phaseir.program import Constants, Program, ProgramBuilder, Provenance, Role, SourceNode
from tribunus.phaseir.types import TensorType
from tribunus.version import VERSION

PHASE: Final = "main"
_WITHOUT_EFFECT: Final = frozenset(
    (
        "consumed_inputs",  # a hint of old versions
        "extrapolation_value",  # tf_crop_and_resize only, which is refused
        "hidden_size",  # repeats the weights' shape
        "kernel_shape",
        "momentum",  # training
        "ratio",
        "seed",
        "saturate",  # 8-bit floats: PhaseIR saturates, which is the default
        "stash_type",  # precision of statistics: the golden is exact, the policy's business
        "precision",
        "storage_order",  # of indices, which are refused
    )
)
_CONTROL: Final = frozenset(("If", "Loop", "Scan"))


@dataclass(frozen=True, slots=True)
class NodeProblem:
    """Why a node cannot be lowered.  is_shape_law: an op refused its operands' shapes, which other dims may cure."""

    node: NodeId
    reason: str
    is_shape_law: bool

    def __str__(self) -> str:
        name = self.node.name or "(unnamed)"
        domain = self.node.domain or "ai.onnx"
        return f"{name}: {self.node.op_type} of {domain}: {self.reason}"


class UnsupportedNodes(LoweringError):
    """Every node that cannot be lowered, each with its name, op, domain and reason."""

    def __init__(self, problems: Sequence[NodeProblem]) -> None:
        self.problems = tuple(problems)
        lines = "".join(f"\n  {problem}" for problem in self.problems)
        count = len(self.problems)
        super().__init__(f"{count} {'node' if count == 1 else 'nodes'} cannot be lowered:{lines}")


def lower(model: Model, profile: Profile, constants: Constants) -> Program:
    """The program of a model for one profile; payloads go to ``constants``.

    Raises UnsupportedNodes with all nodes that cannot be lowered; nodes behind them are not judged.
    """
    builder = ProgramBuilder(constants, profile.symbols)
    to = Lowering(builder)
    table: dict[str, Operand | None] = {"": None}
    inputs: list[int] = []
    for fact, shape in zip(model.facts.inputs, profile.shapes, strict=True):
        operand = to.input(TensorType(fact.dtype, shape), fact.label)
        table[fact.label] = operand
        inputs.append(to.id_of(operand))
    for name, tensor in model.initializers.items():
        table[name] = to.stored(tensor, name)
    read = _read_names(model)
    live = _live_nodes(model)
    problems: list[NodeProblem] = []
    for node in live:
        problem = _lower_node(to, model, node, table, read)
        if problem is not None:
            problems.append(problem)
    if problems:
        raise UnsupportedNodes(problems)
    outputs = _outputs(to, model, table)
    facts = model.facts
    provenance = Provenance(facts.digest, facts.producer, facts.opset, f"tribunus {VERSION}")
    return prune(builder.finish(PHASE, tuple(inputs), outputs, provenance))


def _lower_node(
    to: Lowering, model: Model, node: Node, table: dict[str, Operand | None], read: frozenset[str]
) -> NodeProblem | None:
    """Lower one node into ``table``.  A node that reads what could not be lowered is passed over in silence."""
    refusal = _refusal(node)
    if refusal is not None:
        return NodeProblem(node.id, refusal, is_shape_law=False)
    if any(name not in table for name in node.inputs):
        return None
    operands = tuple(table[name] for name in node.inputs)
    version = model.opsets[node.id.domain]
    site = Site(node, version, operands, tuple(name in read for name in node.outputs))
    to.source = (to.builder.source(SourceNode(node.id.name, node.id.op_type, node.id.domain)),)
    try:
        results = RULES[node.id.op_type](to, site)
    except LoweringError as error:
        return NodeProblem(node.id, error.detail, isinstance(error, TypeRuleError))
    except DimError as error:
        return NodeProblem(node.id, error.detail, is_shape_law=True)
    except (ArithmeticError, IndexError, ValueError) as error:  # ranks or numbers that the definition does not allow
        return NodeProblem(node.id, f"its operands and attributes do not fit together ({error})", is_shape_law=False)
    if strange := [name for name in site.ignored() if name not in _WITHOUT_EFFECT]:
        return NodeProblem(node.id, f"attribute {', '.join(strange)} is not supported", is_shape_law=False)
    for name, operand in zip(node.outputs, results, strict=False):
        if name:
            table[name] = to.named(operand, name)
    return None


def _refusal(node: Node) -> str | None:
    """Why no rule serves the node, or None."""
    if node.id.domain:
        return "a custom domain has no definition here"
    if node.id.op_type in _CONTROL:
        inner = [i for a in node.attributes.values() if isinstance(a, Subgraph) for i in a.nodes]
        strangers = sorted(
            {f"{i.domain}::{i.op_type}" if i.domain else i.op_type for i in inner if i.domain or i.op_type not in RULES}
        )
        also = f"; its subgraphs also hold {', '.join(strangers)}" if strangers else ""
        return f"control flow inside a phase is not supported{also}"
    if node.id.op_type not in RULES:
        return "no lowering rule for this op"
    return None


def _read_names(model: Model) -> frozenset[str]:
    """Names that a node or the caller reads."""
    names = {fact.label for fact in model.facts.outputs}
    for node in model.nodes:
        names.update(node.inputs, node.captures)
    return frozenset(names - {""})


def _live_nodes(model: Model) -> tuple[Node, ...]:
    """Nodes that an output depends on, in order."""
    needed = {fact.label for fact in model.facts.outputs}
    live: list[Node] = []
    for node in reversed(model.nodes):
        if needed.intersection(node.outputs):
            needed.update(node.inputs, node.captures)
            live.append(node)
    return tuple(reversed(live))


def _outputs(to: Lowering, model: Model, table: Mapping[str, Operand | None]) -> tuple[int, ...]:
    """Program values of the outputs: each a value of its own that an op computes, under the model's name."""
    found: list[int] = []
    for fact in model.facts.outputs:
        operand = table.get(fact.label)
        if operand is None:
            raise LoweringError(f"output {fact.label} is computed by nothing")
        value = to.id_of(operand)
        if to.builder.value(value).role is not Role.TEMP or value in found:
            to.source = ()
            value = to.builder.op("copy", (value,))[0]
        to.builder.relabel(value, fact.label)
        found.append(value)
    return tuple(found)


def at_optimum(profile: Profile) -> Profile:
    """The static profile in which every symbol has its expected value."""
    bindings = {s.name: s.opt for s in profile.symbols}
    return Profile((), tuple(dims.evaluate_shape(shape, bindings) for shape in profile.shapes))


def with_step(profile: Profile, step: int) -> Profile | None:
    """The profile with every symbol on multiples of ``step``; None if a range holds no such value."""
    symbols = []
    for symbol in profile.symbols:
        if symbol.step % step == 0 and symbol.lo % step == 0:
            symbols.append(symbol)
            continue
        lo, hi = -(-symbol.lo // step) * step, symbol.hi // step * step
        if lo > hi:
            return None
        opt = min(max(symbol.opt // step * step, lo), hi)
        symbols.append(replace(symbol, lo=lo, opt=opt, hi=hi, step=step))
    return Profile(tuple(symbols), profile.shapes)

"""Atoms for graph networks: a protein helix and small molecules.

Imported by: benchmarks.zoo.recipes_wider.  Imports: numpy, benchmarks.zoo.signals (random source, grid).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.zoo.archive import Array
from benchmarks.zoo.signals import F64, on_grid, random_source

I64 = NDArray[np.int64]

# Backbone and first side-chain atom of a residue in an ideal alpha helix: element class, distance from the axis in
# Angstrom, turn and rise against the residue's own (100 degrees and 1.5 Angstrom a residue).
_RESIDUE: Final = (
    (1, 1.55, 0.0, -0.9),
    (0, 2.29, 0.5, 0.0),
    (0, 1.66, 1.0, 1.1),
    (2, 2.0, 1.3, 2.2),
    (0, 3.3, 0.4, -0.4),
)
_CONTACT: Final = 6.0
_TARGETS: Final = 6

_RING: Final = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0))
# Bonds of three molecules: a ring with an acid and an ester group, two rings that share a bond, a small branch.
_MOLECULES: Final[tuple[tuple[tuple[int, int], ...], ...]] = (
    (*_RING, (0, 6), (6, 7), (6, 8), (3, 9), (9, 10), (10, 11), (10, 12), (9, 13)),
    (*_RING, (2, 6), (6, 7), (7, 8), (8, 9), (9, 3)),
    ((0, 1), (1, 2), (1, 3)),
)
_SPECTRUM: Final = 8
_WALKS: Final = 16


def helix(residues: int, seed: int) -> dict[str, Array]:
    """An alpha helix of random residues: five atoms each, an edge between any two atoms within 6 Angstrom."""
    draw = random_source(seed)
    kinds = draw.integers(0, 20, residues)
    owner = np.repeat(np.arange(residues), len(_RESIDUE))
    element, radius, turn, rise = (np.tile(column, residues) for column in zip(*_RESIDUE, strict=True))
    angle = np.deg2rad(100.0) * owner + turn
    place = on_grid(np.stack([radius * np.cos(angle), radius * np.sin(angle), 1.5 * owner + rise], axis=1), 1e-3)
    apart = np.linalg.norm(place[:, None].astype(np.float64) - place[None], axis=-1)
    source, target = np.nonzero((apart > 0) & (apart < _CONTACT))
    length = apart[source, target]
    steps = np.abs(owner[source] - owner[target])
    outward = np.stack([np.cos(angle), np.sin(angle), np.zeros_like(angle)], axis=1)
    # the sixth target of a residue is a second hydrogen on its second atom, where there is one
    slots = np.array([0, 1, 2, 3, 4, 1]) + len(_RESIDUE) * np.arange(residues)[:, None]
    present = np.ones((residues, _TARGETS), np.bool_)
    present[:, -1] = draw.uniform(size=residues) > 0.4
    atoms, edges = len(owner), len(source)

    def noise(*shape: int) -> Array:
        return on_grid(draw.normal(0.0, 0.7, shape), 1e-3)

    return {
        "element": element.astype(np.int64),
        "amino_acid": kinds[owner].astype(np.int64),
        "atom_role": np.tile(np.arange(len(_RESIDUE)), residues).astype(np.int64),
        "bfactor": on_grid(draw.uniform(-1, 1, atoms), 1e-3),
        "edge_index": np.stack([source, target]).astype(np.int64),
        "edge_dist": on_grid(length, 1e-3),
        "seq_sep": np.minimum(steps, 4).astype(np.int64),
        "same_residue": (steps == 0).astype(np.float32),
        "target_indices": slots.astype(np.int64),
        "target_mask": present,
        "residue_types": kinds.astype(np.int64),
        "residue_geometry": noise(residues, 52),
        "target_environment": noise(residues, _TARGETS, 15),
        "temperature_feature": np.zeros((residues, 1), np.float32),
        "target_atom_rsasa": on_grid(draw.uniform(0, 1, (residues, _TARGETS)), 1e-3),
        "pos": place,
        "node_normal": on_grid(outward, 1e-4),
        "is_hbond": ((steps == 4) & (length > 2.7) & (length < 3.2)).astype(np.float32),
        "hb_cos": on_grid(draw.uniform(-1, 1, edges), 1e-3),
    }


def molecules(*which: int) -> dict[str, Array]:
    """A batch of molecules: atom and bond features, both directions of every bond, positions in the graph."""
    nodes: list[F64] = []
    bonds: list[F64] = []
    ends: list[I64] = []
    vectors: list[F64] = []
    values: list[F64] = []
    returns: list[F64] = []
    owner: list[I64] = []
    for row, index in enumerate(which):
        adjacency = _adjacency(_MOLECULES[index])
        first = sum(len(part) for part in nodes)
        pairs = np.array([pair for bond in _MOLECULES[index] for pair in (bond, bond[::-1])])
        nodes.append(_atom_features(adjacency, index))
        bonds.append(_bond_features(pairs))
        ends.append(pairs.T + first)
        vector, value = _laplacian(adjacency)
        vectors.append(vector)
        values.append(value)
        returns.append(_return_probabilities(adjacency))
        owner.append(np.full(len(adjacency), row, np.int64))
    return {
        "feat": on_grid(np.concatenate(nodes), 1e-4),
        "edge_feat": on_grid(np.concatenate(bonds), 1e-4),
        "edge_index": np.concatenate(ends, axis=1).astype(np.int64),
        "laplacian_eigvec": on_grid(np.concatenate(vectors), 1e-3),
        "laplacian_eigval": on_grid(np.concatenate(values), 1e-3),
        "rw_return_probs": on_grid(np.concatenate(returns), 1e-3),
        "batch": np.concatenate(owner),
        "graph_slots": np.ones(len(which), np.float32),
    }


def _adjacency(bonds: Sequence[tuple[int, int]]) -> F64:
    size = 1 + max(max(bond) for bond in bonds)
    matrix = np.zeros((size, size))
    for start, end in bonds:
        matrix[start, end] = matrix[end, start] = 1.0
    return matrix


def _atom_features(adjacency: F64, kind: int) -> F64:
    """(atoms, 85): one-hot element, one-hot degree, relative degree, one-hot hydrogens."""
    atom = np.arange(len(adjacency))
    degree = adjacency.sum(axis=1).astype(np.int64)
    features = np.zeros((len(adjacency), 85))
    features[atom, (3 * atom + kind) % 5] = 1.0
    features[atom, 44 + degree] = 1.0
    features[:, 60] = degree / 4
    features[atom, 70 + np.maximum(0, 4 - degree)] = 1.0
    return features


def _bond_features(pairs: I64) -> F64:
    """(bonds, 13): one-hot order and a length in Angstrom."""
    features = np.zeros((len(pairs), 13))
    features[np.arange(len(pairs)), pairs.sum(axis=1) % 4] = 1.0
    features[:, 12] = 1.4 + 0.05 * (pairs.prod(axis=1) % 3)
    return features


def _laplacian(adjacency: F64) -> tuple[F64, F64]:
    """(atoms, 8) eigenvectors without the constant one, largest entry positive; the eigenvalues on every row."""
    value, vector = np.linalg.eigh(np.diag(adjacency.sum(axis=1)) - adjacency)
    largest = vector[np.abs(np.round(vector, 6)).argmax(axis=0), np.arange(len(value))]
    vector = vector * np.where(largest < 0, -1.0, 1.0)
    kept = min(_SPECTRUM, len(value) - 1)
    vectors, values = np.zeros((len(value), _SPECTRUM)), np.zeros((len(value), _SPECTRUM))
    vectors[:, :kept], values[:, :kept] = vector[:, 1 : kept + 1], value[1 : kept + 1]
    return vectors, values


def _return_probabilities(adjacency: F64) -> F64:
    """(atoms, 16): chance that a random walk is back where it began after 1 to 16 steps."""
    step = adjacency / adjacency.sum(axis=1, keepdims=True)
    walk = np.eye(len(adjacency))
    rows = []
    for _ in range(_WALKS):
        walk = walk @ step
        rows.append(np.diag(walk))
    return np.stack(rows, axis=1)

"""Merkle tree of RFC 6962 over byte strings: root, inclusion proof and its check.

Imported by: image, ledger.  Imports: sha256.

A leaf is SHA-256(0x00 || data), a node SHA-256(0x01 || left || right); a level of odd length carries its last node up
unchanged, which gives the tree of the RFC's recursion.  The root of nothing is SHA-256 of the empty string.
"""

from __future__ import annotations

from collections.abc import Sequence

from tribunus.sha256 import sha256


def leaf_hash(data: bytes) -> bytes:
    """Hash of one leaf."""
    return sha256(b"\x00" + data)


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    """Root over ``leaves``, the data (not the hashes) in order; 32 bytes."""
    if not leaves:
        return sha256(b"")
    level = [leaf_hash(leaf) for leaf in leaves]
    while len(level) > 1:
        level = _parents(level)
    return level[0]


def inclusion_proof(leaves: Sequence[bytes], index: int) -> tuple[bytes, ...]:
    """Sibling hashes from leaf ``index`` (0-based) up to the root.  Raises IndexError outside the leaves."""
    if not 0 <= index < len(leaves):
        raise IndexError(f"leaf {index} of {len(leaves)}")
    level = [leaf_hash(leaf) for leaf in leaves]
    proof = []
    while len(level) > 1:
        sibling = index ^ 1
        if sibling < len(level):
            proof.append(level[sibling])
        level = _parents(level)
        index //= 2
    return tuple(proof)


def is_included(data: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Whether ``proof`` shows that leaf ``index`` of a tree of ``size`` leaves with this ``root`` is ``data``."""
    if not 0 <= index < size:
        return False
    node = leaf_hash(data)
    last = size - 1
    rest = list(proof)
    while last > 0:
        if index % 2 == 1 or index < last:
            if not rest:
                return False
            sibling = rest.pop(0)
            node = _node(sibling, node) if index % 2 == 1 else _node(node, sibling)
        index //= 2
        last //= 2
    return not rest and node == root


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right)


def _parents(level: list[bytes]) -> list[bytes]:
    above = [_node(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
    if len(level) % 2 == 1:
        above.append(level[-1])
    return above

"""The tree against the recursion and the vectors of RFC 6962."""

from __future__ import annotations

import hashlib

import pytest

from tribunus.image.merkle import inclusion_proof, is_included, leaf_hash, merkle_root

LEAVES = [bytes.fromhex(x) for x in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657",
                                     "606162636465666768696a6b6c6d6e6f")]  # fmt: skip
ROOTS = {
    0: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    7: "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}


def by_recursion(leaves: list[bytes]) -> bytes:
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaf_hash(leaves[0])
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return hashlib.sha256(b"\x01" + by_recursion(leaves[:split]) + by_recursion(leaves[split:])).digest()


@pytest.mark.parametrize("count", sorted(ROOTS))
def test_root_equals_the_published_vectors(count: int) -> None:
    assert merkle_root(LEAVES[:count]).hex() == ROOTS[count]


def test_root_equals_the_recursion_for_every_small_size() -> None:
    leaves = [b"leaf %d" % number for number in range(70)]
    assert all(merkle_root(leaves[:n]) == by_recursion(leaves[:n]) for n in range(71))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 33])
def test_proofs_show_their_own_leaf_and_no_other(size: int) -> None:
    leaves = [b"leaf %d" % number for number in range(size)]
    root = merkle_root(leaves)
    for index in range(size):
        proof = inclusion_proof(leaves, index)
        assert is_included(leaves[index], index, size, proof, root)
        assert not is_included(b"another", index, size, proof, root)
        assert not is_included(leaves[index], index, size, (*proof, root), root)
        assert not any(is_included(leaves[index], other, size, proof, root) for other in range(size) if other != index)
        if proof:
            assert not is_included(leaves[index], index, size, proof[:-1], root)


def test_a_proof_outside_the_tree_is_refused() -> None:
    with pytest.raises(IndexError):
        inclusion_proof([b"one"], 1)
    assert not is_included(b"one", 1, 1, (), merkle_root([b"one"]))

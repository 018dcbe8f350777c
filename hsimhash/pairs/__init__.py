"""All pairs of near fingerprints or signatures of a set, and clusters of them, without a store."""

from hsimhash.pairs.blocks import PairBlock, Pairs
from hsimhash.pairs.clusters import Clusters, Diameters, components, diameters, star
from hsimhash.pairs.search import MEMORY_BYTES, find_pairs, group_equal, iter_pairs

__all__ = [
    "MEMORY_BYTES",
    "Clusters",
    "Diameters",
    "PairBlock",
    "Pairs",
    "components",
    "diameters",
    "find_pairs",
    "group_equal",
    "iter_pairs",
    "star",
]

"""Find all near-duplicates in a set of texts, signatures or fingerprints, without a store."""

from hsimhash.pairs.clusters import Clusters, Diameters, components, diameters, star
from hsimhash.pairs.pair_blocks import PairBlock, Pairs
from hsimhash.pairs.search import MEMORY_BYTES, find_pairs, group_equal, iter_pairs
from hsimhash.pairs.texts import Cluster, Duplicates, Pair, duplicates

__all__ = [
    "MEMORY_BYTES",
    "Cluster",
    "Clusters",
    "Diameters",
    "Duplicates",
    "Pair",
    "PairBlock",
    "Pairs",
    "components",
    "diameters",
    "duplicates",
    "find_pairs",
    "group_equal",
    "iter_pairs",
    "star",
]

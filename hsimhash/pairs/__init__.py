"""All pairs of near fingerprints of a set, and clusters of them, without a store."""

from hsimhash.pairs.search import MEMORY_BYTES, PairBlock, Pairs, find_pairs, group_equal, iter_pairs

__all__ = ["MEMORY_BYTES", "PairBlock", "Pairs", "find_pairs", "group_equal", "iter_pairs"]

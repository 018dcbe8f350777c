"""The sample corpus and its true near-duplicates."""

from hsimhash.sample.corpus import PAIR_KINDS, documents, truth

__all__ = ["PAIR_KINDS", "documents", "truth"]

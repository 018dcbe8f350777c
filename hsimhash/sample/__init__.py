"""The sample corpus and its truth."""

from hsimhash.sample.corpus import KINDS, documents, truth

__all__ = ["KINDS", "documents", "truth"]

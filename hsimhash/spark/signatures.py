"""Compute fingerprints, sketches and keys of texts, identical to those of `Profile.signatures`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from hsimhash.fingerprint import TOO_SHORT, Profile, Signatures
from hsimhash.fingerprint.recipe import DEFAULT_PROFILE
from hsimhash.fingerprint.stream import signed_texts
from hsimhash.spark.columns import SIGNATURE, check_names

SHORT_KIND = "short"
KIND_NAMES = ("voted", "exact", SHORT_KIND)  # by the numbers that `Signatures` has


def fingerprints(
    documents: DataFrame, *, text: str = "text", id: str = "id", profile: Profile | str = DEFAULT_PROFILE
) -> DataFrame:
    """Return documents with their signatures in place of their texts.

    Args:
        documents: a row each; their other columns stay.
        text: the column of texts, strings.
        id: the column of ids, which is named `id` in the result, as a string.
        profile: one, or the name of one.

    Returns:
        `id`, the other columns, `fingerprint`, `sketch` and `key` (`bigint`; null where there is none), and `kind`:
        `voted`, `exact` (too few features for a vote: it matches only its equals) or `short` (no fingerprint).

    Raises:
        ValueError: there is no such column or profile, or one of the documents' columns has a name of the result.
    """
    check_names(documents, [text, id])
    made = Profile.named(profile) if isinstance(profile, str) else profile
    others = [name for name in documents.columns if name not in (text, id)]
    if taken := sorted({*SIGNATURE, "kind", "id"} & set(others)):
        raise ValueError(f"the documents have columns that the result needs: {', '.join(taken)}; drop or rename them")
    rows = documents.select(F.col(f"`{id}`").cast("string").alias("id"), *(f"`{name}`" for name in others), f"`{text}`")
    fields = [*rows.schema.fields[:-1], *(StructField(name, LongType()) for name in SIGNATURE)]
    return rows.mapInArrow(partial(_signed, made), StructType([*fields, StructField("kind", StringType())]))


def _signed(profile: Profile, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    profile.verify()
    for batch in batches:
        texts = [one or "" for one in batch.column(batch.num_columns - 1).to_pylist()]
        names = [*batch.schema.names[:-1], *SIGNATURE, "kind"]
        yield pa.RecordBatch.from_arrays(
            [*batch.columns[:-1], *signature_arrays(signed_texts(profile, texts).signatures)], names
        )


def signature_arrays(made: Signatures) -> list[pa.Array]:
    """Return fingerprint, sketch, key (null if missing) and kind as columns of an Arrow batch."""
    is_none = made.kinds == TOO_SHORT
    bits = (made.fingerprints, is_none), (made.sketches, made.sketches == 0), (made.keys, made.keys == 0)
    columns = [pa.array(values.view(np.int64), mask=mask) for values, mask in bits]
    return [*columns, pa.array([KIND_NAMES[kind] for kind in made.kinds.tolist()], pa.string())]

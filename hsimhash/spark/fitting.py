"""Fit a rarity table to the texts in files, as 'hsimhash dedup' does: the same documents yield the same table.

Each task keeps the texts with the lowest hashes among its records. Among these texts, those with the lowest hashes
form the sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.features import TextFeatures
from hsimhash.fingerprint.fit import (
    BATCH,
    LEAST_SAMPLE,
    TENTH,
    Fit,
    fitted_table,
    profile_with_table,
    sample_size,
    text_features,
    text_hash,
)
from hsimhash.fingerprint.rarity import RarityTable
from hsimhash.fingerprint.stream import RefusedText
from hsimhash.pairs.keep_policies import Policy
from hsimhash.progress import Observer
from hsimhash.spark.columns import SIGN, observed, signed, unsigned
from hsimhash.spark.executors import OnExecutors
from hsimhash.spark.records import RecordOptions, read_texts, texts_in


def fitted_to_files(
    spark: SparkSession, inputs: Sequence[str], records: RecordOptions, fit: str, observer: Observer
) -> Profile:
    """Return the profile of `records` with a rarity table; see `hsimhash.load.fitting.fitted_profile`."""

    def learn() -> RarityTable | None:
        if records.fingerprint_field is not None:
            return None
        observer.report("fit")
        return fit_files(spark, inputs, records)

    return profile_with_table(records.profile, fit, learn)


def fit_files(
    spark: SparkSession, inputs: Sequence[str], records: RecordOptions, sample: int | None = None
) -> RarityTable | None:
    """Read files once, and fit a table to a sample of their texts; None if there is nothing to learn.

    Args:
        spark: The session.
        inputs: As for `read_documents`.
        records: How to read them; the profile must weigh features by rarity.
        sample: Maximum number of texts in the sample. Default: see `sample_size`.
    """
    reading, profile = replace(records, keep=(Policy("first"),)), records.profile
    least = read_texts(spark, inputs, reading, partial(_least, sample), "hash bigint, text string")
    least, seen = observed(least, count=F.count("hash"))
    if seen["count"] > (sample or LEAST_SAMPLE):
        hashes = least.select("hash").distinct()
        below = 0 if sample else hashes.where(F.col("hash") < TENTH - SIGN).count()
        lowest = hashes.sort("hash").limit(sample or sample_size(below))
        least = least.where(F.col("hash") <= lowest.agg(F.max("hash")).first()[0])
    found = least.dropDuplicates(["hash"]).mapInArrow(
        OnExecutors(partial(_featured, profile)), "hash bigint, key bigint, sketch bigint, hashes binary"
    )
    ordered = found.repartition(1).sortWithinPartitions("hash")
    rows = ordered.mapInArrow(OnExecutors(partial(_fitted, profile)), "content binary").collect()
    return RarityTable.read(bytes(rows[0].content)) if rows else None


def _least(sample: int | None, options: RecordOptions, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the texts of a task that may be in the sample, with hashes as signed numbers in the same order."""
    fit = Fit(options.profile, sample)

    def sifted() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            values = [value or "" for value in batch.column("text").to_pylist()]
            yield batch.take(pa.array(fit.wanted(values).values(), pa.int64()))

    for one in texts_in(options, sifted()):
        for given, text in one.of_documents():
            fit.take(text_hash(given), text, "")
    chosen = fit.chosen()
    for start in range(0, len(chosen), BATCH):
        hashes, texts, _ = zip(*chosen[start : start + BATCH], strict=True)
        numbers = signed(np.array(hashes, np.uint64) ^ np.uint64(SIGN))
        yield pa.RecordBatch.from_arrays([numbers, pa.array(texts, pa.string())], ["hash", "text"])


def _featured(profile: Profile, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the features of texts, except for texts whose features cannot be extracted."""
    profile.verify()
    for part in (batch.slice(start, BATCH) for batch in batches for start in range(0, batch.num_rows, BATCH)):
        found = list(text_features(profile, part.column("text").to_pylist()))
        known = [one for one in found if not isinstance(one, RefusedText)]
        numbers = part.column("hash").filter(pa.array([not isinstance(one, RefusedText) for one in found]))
        keys, sketches = (np.array([getattr(one, name) for one in known], np.uint64) for name in ("key", "sketch"))
        features = pa.array([one.hashes.tobytes() for one in known], pa.binary())
        yield pa.RecordBatch.from_arrays(
            [numbers, signed(keys), signed(sketches), features], ["hash", "key", "sketch", "hashes"]
        )


def _fitted(profile: Profile, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the table for the sample, which is given in order; yield nothing if no two texts share a feature."""
    try:
        table = fitted_table(profile, _features_in(batches))
    except ValueError:
        return
    yield pa.RecordBatch.from_pydict({"content": [table.content()]})


def _features_in(batches: Iterable[pa.RecordBatch]) -> Iterator[TextFeatures]:
    for batch in batches:
        keys, sketches = (unsigned(batch.column(name)).tolist() for name in ("key", "sketch"))
        for key, sketch, hashes in zip(keys, sketches, batch.column("hashes"), strict=True):
            yield TextFeatures(np.frombuffer(hashes.as_buffer(), np.uint64), key, sketch)

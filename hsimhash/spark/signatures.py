"""Compute fingerprints, sketches and keys of texts, identical to those of 'hsimhash fingerprint'."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from hsimhash.fingerprint import TOO_SHORT, Profile, Signatures
from hsimhash.fingerprint.document_fields import FIELD_SEPARATOR
from hsimhash.fingerprint.recipe import DEFAULT_PROFILE
from hsimhash.fingerprint.stream import signed_texts
from hsimhash.inputs.extraction import PageTexts
from hsimhash.inputs.files import InputOptions
from hsimhash.processes import NoResult
from hsimhash.spark.columns import SIGNATURE, check_frame, check_free, column_named, named_column
from hsimhash.spark.executors import OnExecutors

_TEXT = "hsimhash text"  # column that tasks read; a name that documents are unlikely to use
SHORT_KIND = "short"
KIND_NAMES = ("voted", "exact", SHORT_KIND)  # index: the kind's number in `Signatures`


def fingerprints(documents: DataFrame, *, text: str = "text", profile: Profile | str = DEFAULT_PROFILE) -> DataFrame:
    """Return documents with their signatures in place of their texts. Lazy: nothing runs before an action.

    Texts are read as 'hsimhash dedup' reads them. For an HTML page, the main text is used, which requires the `html`
    extra on the executors.

    Example:
        fingerprints(pages, text="body")

    Args:
        documents: DataFrame with one row per document.
        text: Column of texts; ignored if the profile has fields, which then name the columns.
        profile: Profile or its name; "auto-3:rarity=TABLE" uses a table that 'hsimhash fit' wrote. The table's file is
            read only on the driver.

    Returns:
        All columns except the texts, unchanged; `fingerprint`, `sketch` and `key` (`bigint`, null if missing); and the
        `kind`: `voted`, `exact` (too few features for a vote: matches only identical texts) or `short` (no
        fingerprint).

    Raises:
        TypeError: `documents` is not a Spark DataFrame.
        ValueError: A column is missing or has the wrong type, there is no such profile, or a column has the name of a
            result column.
    """
    made = Profile.named(profile) if isinstance(profile, str) else profile
    check_frame(documents)
    texts = _text_names(made, text)
    check_free(documents, [*SIGNATURE, "kind"], besides=texts)
    return signed_rows(documents, [column_named(one) for one in documents.columns if one not in texts], text, made)


def signed_rows(documents: DataFrame, kept: Sequence[Column], text: str, profile: Profile) -> DataFrame:
    """Return the given columns of documents, with their signatures and kinds; see `fingerprints`."""
    rows = documents.select(*kept, _checked_text(documents, _text_names(profile, text), profile).alias(_TEXT))
    fields = [*rows.schema.fields[:-1], *(StructField(name, LongType()) for name in SIGNATURE)]
    schema = StructType([*fields, StructField("kind", StringType())])
    return rows.mapInArrow(OnExecutors(partial(_signed, profile)), schema)


def _text_names(profile: Profile, text: str) -> list[str]:
    """Return the columns that hold the texts: the fields of the profile if it has any, else `text`."""
    return list(profile.field_weights) or [text]


def _checked_text(documents: DataFrame, names: list[str], profile: Profile) -> Column:
    """Return each document's text; raise `ValueError` if a column is missing or does not hold texts."""
    if not profile.fields:
        return named_column(documents, names[0], "text", "texts (strings)", StringType)
    for name in names:
        named_column(documents, name, "profile", "texts (strings or arrays of them)", StringType, ArrayType)
    return joined_texts(documents, names)


def joined_texts(documents: DataFrame, names: Sequence[str]) -> Column:
    """Return each document's text, joined from several columns as `join_fields` does; null if all columns are null."""
    texts = [_field_text(documents, name) for name in names]
    parts = [F.translate(F.coalesce(one, F.lit("")), FIELD_SEPARATOR, " ") for one in texts]
    return F.when(F.coalesce(*texts).isNotNull(), F.concat_ws(FIELD_SEPARATOR, *parts))


def _field_text(documents: DataFrame, name: str) -> Column:
    """Return the text of one of several fields; an array of texts becomes lines."""
    column, kind = column_named(name), documents.schema[name].dataType
    return F.array_join(column.cast("array<string>"), "\n") if isinstance(kind, ArrayType) else column.cast("string")


def _signed(profile: Profile, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    profile.verify()
    with PageTexts(InputOptions().for_profile(profile)) as pages:
        for batch in batches:
            texts = _contents(profile, pages, [one or "" for one in batch.columns[-1].to_pylist()])
            columns = [*batch.columns[:-1], *signature_arrays(signed_texts(profile, texts).signatures)]
            yield pa.RecordBatch.from_arrays(columns, [*batch.schema.names[:-1], *SIGNATURE, "kind"])


def _contents(profile: Profile, pages: PageTexts, values: list[str]) -> list[str]:
    """Return the texts to fingerprint; an empty text for a page whose main text is not found within the limits."""
    if profile.tokens == "features":
        return values
    return ["" if isinstance(one, NoResult) else one for one in pages.texts_of(values)]


def signature_arrays(made: Signatures) -> list[pa.Array]:
    """Return fingerprint, sketch, key (null if missing) and kind as columns of an Arrow batch."""
    is_none = made.kinds == TOO_SHORT
    bits = (made.fingerprints, is_none), (made.sketches, made.sketches == 0), (made.keys, made.keys == 0)
    columns = [pa.array(values.view(np.int64), mask=mask) for values, mask in bits]
    return [*columns, pa.array([KIND_NAMES[kind] for kind in made.kinds.tolist()], pa.string())]

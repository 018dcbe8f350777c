"""Build a graph of documents: one vertex for all documents with the same signature, and edges between near vertices.

Two signatures are near if their fingerprints are within the distance or they share a key. In addition, their sketches
must differ in few enough bits, or at least one sketch must be missing. `pairs.signatures` uses the same rule.

The first step compares only fingerprints. Ids and other values are read only for documents that have a near or an equal
document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from hsimhash.cover import DEFAULT_DISTANCE, check_dedup_distance
from hsimhash.dedup.options import METHODS, PairsListed, check_clusters, check_pairs
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.rarity import FIT_AUTO
from hsimhash.fingerprint.recipe import DEFAULT_PROFILE
from hsimhash.fingerprint.signature import FAR, MAX_SKETCH, SKETCH_BITS, check_max_sketch
from hsimhash.pairs.signatures import CROWD
from hsimhash.spark.columns import (
    SIGNATURE,
    by_key_part,
    check_names,
    distance_of,
    has_signatures,
    key_parts,
    materialized,
    observed,
    signature_columns,
    signed_documents,
)
from hsimhash.spark.near_pairs import PAIR_LIMITS, PairLimits, near_fingerprints

ALIKE = 8  # maximum signatures with one fingerprint; more form a crowd, and also one with every near fingerprint
CELL = 1 << 12  # signatures with a common key part that one cell compares; larger numbers are divided into cells


@dataclass(frozen=True, slots=True)
class SparkDedupOptions:
    """Decides which documents are near, and how they are clustered."""

    max_distance: int = DEFAULT_DISTANCE  # bits
    max_sketch: int | None = MAX_SKETCH  # maximum number of bits in which sketches may differ; None: any number
    clusters: str = METHODS[0]  # `star`: all documents are near the kept one; `components`: linked by near pairs
    max_cluster_size: int | None = None  # maximum size of a component; larger components are split into stars
    pairs: PairsListed = "kept"  # which pairs are listed; see `DedupOptions`
    limits: PairLimits = PAIR_LIMITS
    keying: Keying = Keying.WHOLE  # decides when two documents share a key; `dedup_files` takes it from the profile
    fit: str = FIT_AUTO  # rarity table for `dedup_files`; see `DedupOptions`

    def __post_init__(self) -> None:
        check_clusters(self.clusters, self.max_cluster_size)
        check_pairs(self.pairs)
        check_max_sketch(self.max_sketch)
        check_dedup_distance(self.max_distance)


@dataclass(frozen=True)
class Vertices:
    """Documents that have an equal document or may have a near document, and their vertices.

    Attributes:
        documents: `id`, the signature, `position` and `rank`.
        repeated: Documents that share their fingerprint with another document; None if there are none.
        others: The `id` of each remaining document.
        rows: The vertices: `number`, the signature, `first` (lowest position and id of its documents) and `size`
            (number of its documents). If documents have ranks, also `best` (lowest rank and id; `number` has the same
            order) and `smallest` (the smallest id).
        edges: Near pairs: numbers `low` < `high`, `distance` in bits, `differing` (bits in which the sketches differ,
            null if one is missing), `found_by`.
        crowds: Unless all pairs are listed, the members of each crowd: `crowd`, `number` and the signature.
        has_signatures: Whether there are sketches or keys.
        is_small: Whether all rows can be broadcast to every executor.
    """

    documents: DataFrame
    repeated: DataFrame | None
    others: DataFrame
    rows: DataFrame
    edges: DataFrame
    crowds: DataFrame | None
    has_signatures: bool
    is_small: bool


def vertices_of(
    documents: DataFrame, position: Column, options: SparkDedupOptions, rank: Sequence[Column] | None = None
) -> Vertices:
    """Return the vertices of documents, and the near pairs of vertices.

    Args:
        documents: Columns `id`, unique, and `fingerprint`; optionally `sketch` and `key`.
        position: Column that orders the documents; the id decides among equal positions.
        options: Defines which documents are near.
        rank: Columns that decide which of two documents to keep: the document with the lower value in the first column
            that differs, or else with the smaller id. Without `rank`, the numbers of the vertices are arbitrary.
    """
    given = _given(documents, position, F.lit(0) if rank is None else F.struct(*rank))
    limits, is_signed = options.limits, has_signatures(documents)
    has_crowds = rank is not None and options.pairs != "all"
    found = near_fingerprints(given.select("fingerprint"), options.max_distance, limits, has_crowds=has_crowds)
    is_same = F.col("left") == F.col("right")
    found, seen = observed(found, pairs=F.count("left"), repeated=F.count_if(is_same))
    repeated = found.where(is_same).select(F.col("left").alias("fingerprint"))
    near = found.where(~is_same).select("left", "right")
    involved = found.select(F.explode(F.array("left", "right")).alias("fingerprint")).where("fingerprint is not null")
    count = 2 * seen["pairs"]
    if is_signed:
        involved, keyed = observed(_with_shared_keys(involved, given, options.keying), count=F.count("fingerprint"))
        count = keyed["count"]
    if count <= limits.given_fingerprints:
        involved, repeated = F.broadcast(involved), F.broadcast(repeated)
    ours, others = (given.join(involved, "fingerprint", kind) for kind in ("left_semi", "left_anti"))
    if seen["repeated"]:
        ours = ours.join(repeated.withColumn("repeated", F.lit(True)), "fingerprint", "left")
    ours = materialized(ours)
    single, several = (ours.where("repeated is null"), ours.where("repeated")) if seen["repeated"] else (ours, None)
    rows = _rows_of(single, several, is_ranked=rank is not None, is_signed=is_signed)
    crowds = None
    if rank is None and not is_signed:  # numbers are fingerprints, so `count` also bounds the rows
        edges = _plain_edges(near)
    else:
        rows, numbered = observed(rows, count=F.count("number"))
        count = numbered["count"]
        if has_crowds:
            named = found.where("crowd is not null").select("crowd", F.col("left").alias("fingerprint"))
            near, crowds = _crowded(rows, near, named, options.keying if is_signed else None)
        edges = materialized(_edges(rows, near, options, is_signed=is_signed, has_crowds=has_crowds))
    return Vertices(ours, several, others.select("id"), rows, edges, crowds, is_signed, count <= limits.given_ids)


def _given(documents: DataFrame, position: Column, rank: Column) -> DataFrame:
    """Return the documents that have an id and a fingerprint, with the columns of `Vertices.documents`."""
    check_names(documents, ["id", "fingerprint"])
    given = documents.select("id", *signature_columns(documents), position.alias("position"), rank.alias("rank"))
    return given.where("fingerprint is not null and id is not null")


def _crowded(rows: DataFrame, near: DataFrame, named: DataFrame, keying: Keying | None) -> tuple[DataFrame, DataFrame]:
    """Return the near pairs to list, and the crowds, which contain all other near pairs.

    More than ALIKE rows with the same fingerprint, or more than CROWD with the same part of a key, also form a crowd.
    If `keying` is None, no two rows have the same fingerprint, and there are no keys.
    """
    if keying is None:
        return near, _even_crowds(named.join(rows, "fingerprint").select("crowd", "number", *SIGNATURE))
    many = _shared(rows, "fingerprint", more_than=ALIKE)
    side = [F.col(name) == F.col("fingerprint") for name in ("left", "right")]
    large = near.join(many, side[0], "left_semi").unionByName(near.join(many, side[1], "left_semi")).distinct()
    few = near.join(many, side[0], "left_anti").join(many, side[1], "left_anti")
    met = large.select(
        F.xxhash64("left", "right").alias("crowd"), F.explode(F.array("left", "right")).alias("fingerprint")
    )
    by_fingerprint = named.unionByName(met).unionByName(
        many.select(F.xxhash64("fingerprint").alias("crowd"), "fingerprint")
    )
    crowds = by_fingerprint.join(rows, "fingerprint").select("crowd", "number", *SIGNATURE)
    filed = by_key_part(rows, keying)
    by_key = filed.join(_shared(filed, "part", more_than=CROWD), "part", "left_semi").select(
        F.xxhash64("part", F.lit(0)).alias("crowd"), "number", *SIGNATURE
    )
    return few, _even_crowds(crowds.unionByName(by_key))


def _shared(rows: DataFrame, name: str, *, more_than: int) -> DataFrame:
    """Return the values of a column that more than `more_than` rows have."""
    return rows.groupBy(name).agg(F.count("*").alias("sharing")).where(F.col("sharing") > more_than).select(name)


def _even_crowds(members: DataFrame) -> DataFrame:
    """Compute the members of crowds, spread evenly over partitions, because a join may leave them in only a few."""
    return materialized(members.repartition("crowd", "number"))


def _with_shared_keys(fingerprints: DataFrame, given: DataFrame, keying: Keying) -> DataFrame:
    """Return the given fingerprints, and the fingerprints of documents that share a key with another document."""
    filed = by_key_part(given.select("fingerprint", "key"), keying)
    shared = filed.join(_shared(filed, "part", more_than=1), "part", "left_semi")
    return fingerprints.unionByName(shared.select("fingerprint")).distinct()


def _rows_of(single: DataFrame, repeated: DataFrame | None, *, is_ranked: bool, is_signed: bool) -> DataFrame:
    """Return the rows of the vertices. Numbers are in the order of `best` if `is_ranked`, else arbitrary.

    Only documents whose fingerprint is repeated are grouped; each of the other documents is already a vertex.
    """
    is_plain = not (is_ranked or is_signed)
    values = {"first": F.struct("position", "id")}
    if is_ranked:
        values |= {"best": F.struct("rank", "id"), "smallest": F.col("id")}
    rows = single.select(
        *SIGNATURE, F.lit(1).cast("bigint").alias("size"), *(value.alias(name) for name, value in values.items())
    )
    if repeated is not None:
        size = F.count("*").alias("size")
        grouped = repeated.groupBy(*SIGNATURE).agg(size, *(F.min(value).alias(name) for name, value in values.items()))
        rows = rows.unionByName(materialized(grouped) if is_plain else grouped)
    if is_ranked:
        rows = rows.repartitionByRange("best").sortWithinPartitions("best")
    return rows.withColumn("number", F.col("fingerprint") if is_plain else F.monotonically_increasing_id())


def _plain_edges(near: DataFrame) -> DataFrame:
    """Return pairs of fingerprints as edges, for vertices whose numbers are their fingerprints."""
    return near.select(
        F.least("left", "right").alias("low"),
        F.greatest("left", "right").alias("high"),
        distance_of(F.col("left"), F.col("right")).cast("int").alias("distance"),
        F.lit(None).cast("int").alias("differing"),
        F.lit("distance").alias("found_by"),
    )


def _edges(
    rows: DataFrame, near: DataFrame, options: SparkDedupOptions, *, is_signed: bool, has_crowds: bool
) -> DataFrame:
    found = near.join(_side(rows, "a"), F.col("left") == F.col("a.fingerprint"))
    found = _measured_edges(found.join(_side(rows, "b"), F.col("right") == F.col("b.fingerprint")), "distance")
    if not is_signed:
        return found
    alike, sharing = (ALIKE, CROWD) if has_crowds else (None, None)
    found = found.unionByName(_measured_edges(_met(rows, "fingerprint", alike), "distance"))
    met = _met(by_key_part(rows, options.keying), "part", sharing)
    if options.keying.most_parts > 1:  # two keys may share several parts: keep the pair only for the lowest part
        common = F.array_intersect(*(key_parts(F.col(f"{side}.key"), options.keying) for side in "ab"))
        met = met.where(F.col("a.met") == F.array_min(common))
    keyed = _measured_edges(met, "key").where(F.col("distance") > options.max_distance)
    return _confirmed(found.unionByName(keyed), options)


def _side(rows: DataFrame, name: str) -> DataFrame:
    return rows.select("number", *SIGNATURE).alias(name)


def _met(rows: DataFrame, by: str, most: int | None) -> DataFrame:
    """Return all pairs of rows with a common value in a column, as `a` and `b`, with the value as `met`.

    Values that occur in more than `most` rows are skipped. If more than CELL rows have a value, they are divided into
    blocks of about CELL rows, and every two blocks are joined separately, so that no task gets all of them.
    """
    given = rows.select("number", *SIGNATURE, F.col(by).alias("met"))
    counted = given.groupBy("met").agg(F.count("*").alias("count")).where("count > 1")
    counted = counted if most is None else counted.where(F.col("count") <= most)
    counted = counted.select("met", F.ceil(F.col("count") / CELL).cast("int").alias("blocks"))
    cells = given.join(counted, "met")
    cells = cells.withColumn("block", F.pmod(F.xxhash64("number"), F.col("blocks")).cast("int"))
    cells = cells.withColumn("other", F.explode(F.sequence(F.lit(0), F.col("blocks") - 1)))
    cells = cells.withColumn("cell", F.struct(F.least("block", "other"), F.greatest("block", "other")))
    a, b = cells.where("block <= other").alias("a"), cells.where("block >= other").alias("b")
    met = a.join(b, [F.col(f"a.{name}") == F.col(f"b.{name}") for name in ("met", "cell")])
    is_own = F.col("a.block") == F.col("b.block")
    return met.where(~is_own | (F.col("a.number") < F.col("b.number")))


def _measured_edges(met: DataFrame, found_by: str) -> DataFrame:
    one, other = F.col("a.number"), F.col("b.number")
    has_sketches = (F.col("a.sketch") != 0) & (F.col("b.sketch") != 0)
    return met.select(
        F.least(one, other).alias("low"),
        F.greatest(one, other).alias("high"),
        distance_of(F.col("a.fingerprint"), F.col("b.fingerprint")).cast("int").alias("distance"),
        F.when(has_sketches, distance_of(F.col("a.sketch"), F.col("b.sketch"))).alias("differing"),
        F.lit(found_by).alias("found_by"),
    )


def _confirmed(edges: DataFrame, options: SparkDedupOptions) -> DataFrame:
    """Drop pairs whose sketches show that the texts are not alike."""
    if options.max_sketch is None:
        return edges
    return edges.where(F.col("differing").isNull() | agrees(F.col("differing"), F.col("distance"), options.max_sketch))


def agrees(differing: Column, distance: Column, max_sketch: int) -> Column:
    """Return a column that is true if sketches differ in few enough bits; see `are_alike`."""
    beyond = F.greatest(F.lit(0), distance - FAR)
    return differing <= F.greatest(F.lit(0), F.lit(max_sketch) - beyond)


def pairs(
    documents: DataFrame,
    *,
    id: str = "id",
    max_distance: int = DEFAULT_DISTANCE,
    max_sketch: int | None = MAX_SKETCH,
    profile: Profile | str = DEFAULT_PROFILE,
    position: str | None = None,
    limits: PairLimits = PAIR_LIMITS,
) -> DataFrame:
    """Return all pairs of near documents, as 'hsimhash dedup --pairs all' lists them, without pairs of equal documents.

    If several documents have the same signature, only the first of them is paired with other documents; each of the
    others is paired only with the first. The call runs Spark jobs.

    Example:
        pairs(fingerprints(pages, text="body"), id="url")

    Args:
        documents: DataFrame with a column of ids, `fingerprint` and optionally `sketch` and `key`, as `fingerprints`
            returns them. Rows without an id or a fingerprint are skipped. The DataFrame is read several times, so cache
            it if it is costly to compute.
        id: Column of ids: strings or whole numbers, unique.
        max_distance: Maximum distance between fingerprints, in bits.
        max_sketch: Maximum number of their 64 bits in which sketches may differ; fewer if the fingerprints differ in
            more than 16 bits. None: any number.
        profile: Profile that made the keys, as for `fingerprints`; it decides when two documents share a key.
        position: Column that orders the documents. Default: order by id.
        limits: Memory limits for tasks.

    Returns:
        `left` and `right`, two ids, where `left` comes first in the order; `distance`; and, if there are sketches or
        keys, `similarity` of the texts (0 to 1, or null if a sketch is missing) and `found_by`: `distance` or `key`.

    Raises:
        TypeError: `documents` is not a Spark DataFrame.
        ValueError: A column is missing or has the wrong type, there is no such profile, or a number is out of range.
    """
    given = signed_documents(documents, id, position)
    options = SparkDedupOptions(max_distance, max_sketch, limits=limits, keying=keying_of(profile))
    return pair_rows(vertices_of(given, F.col("position"), options))


def keying_of(profile: Profile | str) -> Keying:
    """Return the kind of a profile's keys; the profile may be given by name."""
    return (Profile.named(profile) if isinstance(profile, str) else profile).key_kind


def pair_rows(vertices: Vertices, *, has_equal: bool = False) -> DataFrame:
    """Return the table of pairs.

    Args:
        vertices: Vertices of the documents.
        has_equal: Whether to list all pairs of documents. Otherwise, only two kinds are listed: pairs of the first
            documents of two vertices, and pairs of every other document with the first document of its vertex.
    """
    members = vertices.rows.select("number", F.col("first").alias("member"))
    repeated = vertices.repeated
    if repeated is not None and has_equal:
        members = _members(vertices.rows, repeated)
    elif vertices.is_small:
        members = F.broadcast(members)
    near = vertices.edges.join(members.alias("a"), F.col("low") == F.col("a.number"))
    near = near.join(members.alias("b"), F.col("high") == F.col("b.number"))
    left, right = F.least("a.member", "b.member"), F.greatest("a.member", "b.member")
    found = near.select(left["id"].alias("left"), right["id"].alias("right"), "distance", "differing", "found_by")
    if repeated is not None:
        found = found.unionByName(_all_equal_pairs(repeated) if has_equal else _equal_pairs(vertices.rows, repeated))
    if not vertices.has_signatures:
        return found.select("left", "right", "distance")
    is_known = F.col("differing").isNotNull()
    similarity = F.when(is_known, similarity_of(F.col("differing"))).alias("similarity")
    return found.select("left", "right", "distance", similarity, "found_by")


def _members(rows: DataFrame, repeated: DataFrame) -> DataFrame:
    """Return each vertex's documents as columns `number` and `member`, a struct with the fields of `first`."""
    single = rows.where("size = 1").select("number", F.col("first").alias("member"))
    several = rows.where("size > 1").select("number", *SIGNATURE)
    documents = repeated.select(*SIGNATURE, F.struct("position", "id").alias("member"))
    return single.unionByName(documents.join(several, list(SIGNATURE)).select("number", "member"))


def similarity_of(differing: Column) -> Column:
    """Return the estimated similarity of texts whose sketches differ in `differing` bits."""
    return F.greatest(F.lit(0.0), 1 - 2 * differing / SKETCH_BITS)


def _equal_pairs(rows: DataFrame, repeated: DataFrame) -> DataFrame:
    """Return the pairs of each vertex's first document with its other documents."""
    several = rows.where("size > 1").select(*SIGNATURE, F.col("first.id").alias("left"))
    met = repeated.join(several, list(SIGNATURE)).where("id <> left")
    return _equal_rows(met, F.col("left"), F.col("id"), F.col("sketch"))


def _all_equal_pairs(repeated: DataFrame) -> DataFrame:
    """Return all pairs of documents with the same signature."""
    documents = repeated.withColumn("number", F.struct("position", "id")).withColumn("same", F.struct(*SIGNATURE))
    met = _met(documents, "same", None)
    ends = F.col("a.number"), F.col("b.number")
    return _equal_rows(met, F.least(*ends)["id"], F.greatest(*ends)["id"], F.col("a.sketch"))


def _equal_rows(met: DataFrame, left: Column, right: Column, sketch: Column) -> DataFrame:
    """Return pairs of documents with the same signature as rows like `Vertices.edges`, but with ids."""
    return met.select(
        left.alias("left"),
        right.alias("right"),
        F.lit(0).alias("distance"),
        F.when(sketch != 0, F.lit(0)).alias("differing"),
        F.lit("distance").alias("found_by"),
    )

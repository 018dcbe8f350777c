"""Options and summary of a dedup run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Literal, get_args

from hsimhash.cover import DEFAULT_DISTANCE
from hsimhash.dedup.report import Notice, Totals
from hsimhash.fingerprint.rarity import FIT_AUTO, Learnt, learnt_json
from hsimhash.fingerprint.signature import MAX_SKETCH
from hsimhash.inputs.files import InputOptions
from hsimhash.pairs import MEMORY_BYTES
from hsimhash.pairs.keep_policies import Policy

Method = Literal["star", "components"]
METHODS: tuple[Method, ...] = ("star", "components")
PairsListed = Literal["kept", "all", "none"]


def check_clusters(method: str, max_cluster_size: int | None) -> None:
    """Raise `ValueError` unless the clustering options are valid; see `DedupOptions`."""
    if method not in METHODS:
        raise ValueError(f"unknown clusters {method!r}; use {' or '.join(METHODS)}")
    if max_cluster_size is not None and method != "components":
        raise ValueError("max_cluster_size applies only to components; omit it")
    if max_cluster_size is not None and max_cluster_size < 1:
        raise ValueError(f"max_cluster_size must be at least 1, got {max_cluster_size}")


def check_pairs(listed: str) -> None:
    """Raise `ValueError` unless `listed` is a valid choice of pairs to list."""
    if listed not in get_args(PairsListed):
        raise ValueError(f"unknown pairs {listed!r}; use {', '.join(get_args(PairsListed))}")


@dataclass(frozen=True, slots=True)
class DedupOptions:
    """Options for a run."""

    max_distance: int = DEFAULT_DISTANCE  # maximum distance, in bits, of near documents that do not share a key
    max_sketch: int | None = MAX_SKETCH  # maximum distance of near documents' sketches, if both have one; None: any
    clusters: Method = METHODS[0]  # `star`: all documents are near the kept one; `components`: linked by near pairs
    max_cluster_size: int | None = None  # maximum size of a component; larger components are split into stars
    keep: Sequence[Policy] = (Policy("first"),)  # which document of a cluster to keep; the first policy decides first
    reading: InputOptions = field(default_factory=InputOptions)  # how to read the inputs
    workers: int | None = None  # processes that fingerprint texts; default: one per core
    memory_bytes: int = MEMORY_BYTES  # memory for finding pairs; beyond that, disk is used
    table_format: str = "auto"  # `parquet`, `jsonl`; `auto`: Parquet if pyarrow is installed
    pairs: PairsListed = "kept"  # `kept`: each dropped document with the one kept for it; `all`: all near pairs
    overwrite: bool = False  # whether to replace existing results
    fit: str = FIT_AUTO  # rarity table; see `fitted_profile`

    def __post_init__(self) -> None:
        check_clusters(self.clusters, self.max_cluster_size)
        check_pairs(self.pairs)

    def to_json(self) -> dict[str, object]:
        """Return the options that determine the results, as JSON values."""
        own = ("max_distance", "max_sketch", "clusters", "max_cluster_size", "pairs", "fit")
        return {
            **{name: getattr(self, name) for name in own},
            "keep": [str(policy) for policy in self.keep],
            **asdict(self.reading),
        }


def reading_from(options: Mapping[str, object]) -> InputOptions:
    """Return how a run read its inputs, given its options as JSON values; missing options get their defaults."""
    known = {one.name: options[one.name] for one in fields(InputOptions) if one.name in options}
    return InputOptions(**{name: tuple(value) if isinstance(value, list) else value for name, value in known.items()})  # type: ignore[arg-type]


def shown_path(name: str | Path) -> str:
    """Return the name of a file or folder; bytes that are not UTF-8 are escaped."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True)
class DedupSummary:
    """The result of a run: the counts in `stats.json`, warnings, seconds by stage, the folder, and what it learnt."""

    totals: Totals
    notices: Sequence[Notice]
    seconds: Mapping[str, float]
    folder: Path
    learnt: Learnt | None = None  # None: uses the word weights of general text, or weights that do not depend on rarity

    def to_json(self) -> dict[str, object]:
        """Return the counts, the seconds, the folder, and what the run learnt."""
        return {
            **self.totals.to_json(),
            "seconds": round(sum(self.seconds.values()), 3),
            "out": shown_path(self.folder),
            **learnt_json(self.learnt),
        }

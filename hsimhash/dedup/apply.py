"""Results of a run, applied to the inputs it read: their records as they stand, those to keep, those to drop, or all.

As in that run, the first record with an id is the document, and later ones are left out; so give all of its inputs, in
their order.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hsimhash.dedup.outputs import DROP, KEEP, table_in
from hsimhash.dedup.tables import read_column_values
from hsimhash.errors import HsimhashError
from hsimhash.inputs.batch import Documents, Position
from hsimhash.inputs.files import Input, InputOptions
from hsimhash.inputs.records import DocumentReader
from hsimhash.inputs.reread import RawRecords, raw_records

Which = Literal["kept", "dropped", "all"]
BLOCK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """What is written.

    Args:
        which: the `kept` documents, the `dropped` ones, or `all`, each with its cluster and whether it is kept.
        reading: how the inputs are read: as by the run.
    """

    which: Which = "kept"
    reading: InputOptions = field(default_factory=InputOptions)


@dataclass(slots=True)
class Applied:
    """Counts of records: written, left out as documents of the other kind, rejected, with an id seen before.

    `missing` counts documents of the run that were not in the inputs.
    """

    written: int = 0
    left_out: int = 0
    rejected: int = 0
    repeated: int = 0
    missing: int = 0


def apply(
    inputs: Sequence[Input],
    folder: Path,
    options: ApplyOptions,
    write: Callable[[bytes], object],
    say: Callable[[str], object],
) -> Applied:
    """Write records of inputs by what `folder` says of them, in their order; the inputs are not changed.

    A record is written as it stands. With `all`, one of JSON gets the fields `cluster` and `kept`, any other two
    columns more. Of a folder of texts the files' paths are written.

    Raises:
        ValueError: `folder` has no complete results, or a document is not among those of the run.
    """
    return _Application(folder, options, write, say).run(inputs)


class _Application:
    def __init__(
        self, folder: Path, options: ApplyOptions, write: Callable[[bytes], object], say: Callable[[str], object]
    ) -> None:
        self._folder = folder
        self._options = options
        self._write = write
        self._say = say
        clusters = table_in(folder, "clusters")
        with _naming_damage(folder / KEEP):
            self._is_kept: dict[str, bool | None] = dict.fromkeys(_ids_in(folder / KEEP), True)  # None: was met
        with _naming_damage(folder / DROP):
            self._is_kept.update(dict.fromkeys(_ids_in(folder / DROP), False))
        with _naming_damage(clusters):
            self._cluster_of = dict(_clusters_in(clusters)) if options.which == "all" else {}
        self._count = Applied()

    def run(self, inputs: Sequence[Input]) -> Applied:
        for one in inputs:
            if one.kind == "files":
                self._take_files(one)
            else:
                for records in raw_records(one, self._options.reading):
                    self._take(one, records)
        self._count.missing = sum(is_kept is not None for is_kept in self._is_kept.values())
        return self._count

    def _take(self, one: Input, records: RawRecords) -> None:
        documents, marked = records.documents, _marked_json if one.kind == "jsonl" else _marked_columns
        self._tell(one, documents)
        for place, is_kept in self._wanted(one, documents):
            line = records.line(documents.lines[place])
            self._put(documents.doc_ids[place], line, marked, is_kept=is_kept)

    def _take_files(self, one: Input) -> None:
        reader = DocumentReader([one], self._options.reading, lambda: False, BLOCK_BYTES)
        for batch in reader.batches(Position()):
            self._tell(one, batch.documents)
            for place, is_kept in self._wanted(one, batch.documents):
                doc_id = batch.documents.doc_ids[place]
                path = os.fsencode(os.path.join(one.name, doc_id))  # noqa: PTH118
                self._put(doc_id, path, _marked_columns, is_kept=is_kept)

    def _tell(self, one: Input, documents: Documents) -> None:
        self._count.rejected += len(documents.rejects)
        if documents.note:
            self._say(f"{one.name}: {documents.note}")
        if documents.damage:
            self._say(f"{one.name}:{documents.rejects[0].line}: {documents.damage}; what comes before it is written")

    def _wanted(self, one: Input, documents: Documents) -> Iterator[tuple[int, bool]]:
        """Yield the places of the documents to write, and whether they are kept."""
        which = self._options.which
        for place, doc_id in enumerate(documents.doc_ids):
            if doc_id not in self._is_kept:
                where = f"{one.name}:{documents.lines[place]}" if one.kind != "files" else one.name
                raise ValueError(
                    f"{where}: document {doc_id!r:.200} is not among those that {self._folder} was made from; give the "
                    f"inputs that 'hsimhash dedup' read, with the same --id-field and --format, or run it again"
                )
            is_kept = self._is_kept[doc_id]
            self._is_kept[doc_id] = None
            if is_kept is None:
                self._count.repeated += 1
            elif which == "all" or is_kept == (which == "kept"):
                yield place, is_kept
            else:
                self._count.left_out += 1

    def _put(self, doc_id: str, line: bytes, marked: Callable[[bytes, str, bool], bytes], *, is_kept: bool) -> None:
        if self._options.which == "all":
            line = marked(line, self._cluster_of.get(doc_id, doc_id), is_kept)
        self._write(line + b"\n")
        self._count.written += 1


def _marked_json(line: bytes, cluster: str, is_kept: bool) -> bytes:
    fields = {"cluster": cluster, "kept": is_kept}
    record = line.rstrip()
    if b'"cluster"' in record or b'"kept"' in record:  # perhaps fields of the record: they are replaced
        text = json.dumps({**json.loads(record.decode()), **fields}, ensure_ascii=False)
        return text.encode("utf-8", "backslashreplace")  # a lone surrogate is the escape again that JSON reads
    return record[:-1] + b", " + json.dumps(fields, ensure_ascii=False).encode()[1:]


def _marked_columns(line: bytes, cluster: str, is_kept: bool) -> bytes:
    return b"\t".join([line.removesuffix(b"\r"), cluster.encode(), b"true" if is_kept else b"false"])


@contextmanager
def _naming_damage(path: Path) -> Iterator[None]:
    """Give the errors of reading results the name of the file, and the remedy."""
    try:
        yield
    except (OSError, ValueError, KeyError) as error:
        raise HsimhashError(f"{path} cannot be read: {error}; run 'hsimhash dedup' again") from error


def _ids_in(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line.removesuffix("\n")


def _clusters_in(table: Path) -> Iterator[tuple[str, str]]:
    """Yield (document, cluster) of those documents that do not give their cluster its name."""
    for doc_id, cluster in read_column_values(table, ("id", "cluster")):
        if doc_id != cluster:
            yield str(doc_id), str(cluster)

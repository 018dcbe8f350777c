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
from hsimhash.inputs.files import Input, InputOptions
from hsimhash.inputs.reader import documents_of, parsed_blocks
from hsimhash.inputs.records import Documents

Which = Literal["kept", "dropped", "all"]


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """What is written: of `all` documents, each with its cluster and whether it is kept."""

    which: Which = "kept"
    reading: InputOptions = field(default_factory=InputOptions)  # as by the run


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
        ValueError: `folder` has no complete results, a document is not among those of the run, or an input is a table
            or a web archive.
    """
    for one in inputs:
        if one.kind not in ("jsonl", "tsv", "files"):
            raise ValueError(
                f"input {one.name} does not consist of lines that could be written as they stand; {folder / KEEP} has "
                f"the ids of the documents to keep"
            )
    application = _Application(folder, options)
    for one in inputs:
        for documents, lines in _records(one, options.reading):
            application.count.rejected += len(documents.rejects)
            if documents.note:
                say(f"{one.name}: {documents.note}")
            if documents.damage:
                where = f"{one.name}:{documents.rejects[0].line}"
                say(f"{where}: {documents.damage}; what comes before it is written")
            for line in application.chosen(one, documents, lines):
                write(line + b"\n")
                application.count.written += 1
    application.count.missing = sum(is_kept is not None for is_kept in application.is_kept.values())
    return application.count


def _records(one: Input, reading: InputOptions) -> Iterator[tuple[Documents, list[bytes]]]:
    """Yield the documents of an input in batches, with their lines; for a folder of texts these are the paths."""
    if one.kind == "files":
        for documents, _ in documents_of(one, reading):
            yield documents, [os.fsencode(one.path_of(doc_id)) for doc_id in documents.doc_ids]
    else:
        for block, documents in parsed_blocks(one, reading):
            lines = block.lines()
            yield documents, [lines[number - block.first] for number in documents.lines]


class _Application:
    def __init__(self, folder: Path, options: ApplyOptions) -> None:
        clusters = table_in(folder, "clusters")
        self._folder = folder
        self._which = options.which
        self.is_kept: dict[str, bool | None] = {}  # None: was met
        for path, is_kept in ((folder / KEEP, True), (folder / DROP, False)):
            with _naming_damage(path), path.open(encoding="utf-8", newline="\n") as lines:
                self.is_kept.update((line.removesuffix("\n"), is_kept) for line in lines)
        self._cluster_of: dict[str, str] = {}  # of those documents that do not give their cluster its name
        if options.which == "all":
            with _naming_damage(clusters):
                rows = read_column_values(clusters, ("id", "cluster"))
                self._cluster_of = {str(doc_id): str(cluster) for doc_id, cluster in rows if doc_id != cluster}
        self.count = Applied()

    def chosen(self, one: Input, documents: Documents, lines: Sequence[bytes]) -> Iterator[bytes]:
        """Yield what is written of the documents."""
        marked = _marked_json if one.kind == "jsonl" else _marked_columns
        for place, (doc_id, line) in enumerate(zip(documents.doc_ids, lines, strict=True)):
            if doc_id not in self.is_kept:
                where = f"{one.name}:{documents.lines[place]}" if one.kind != "files" else one.name
                raise ValueError(
                    f"{where}: document {doc_id!r:.200} is not among those that {self._folder} was made from; give the "
                    f"inputs that 'hsimhash dedup' read, with the same --id-field and --format, or run it again"
                )
            is_kept, self.is_kept[doc_id] = self.is_kept[doc_id], None
            if is_kept is None:
                self.count.repeated += 1
            elif self._which == "all":
                yield marked(line, self._cluster_of.get(doc_id, doc_id), is_kept)
            elif is_kept == (self._which == "kept"):
                yield line
            else:
                self.count.left_out += 1


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

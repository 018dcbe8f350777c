"""Apply the results of a dedup to its inputs: copy the records to keep, the records to drop, or all records.

As in the dedup, the first record with an id is the document, and later records with that id are skipped. So pass all
inputs of the dedup, in the same order. Records that the dedup rejected because their texts took too much time or memory
are also skipped, according to its list of rejects.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from hsimhash.dedup.options import reading_from, shown_path
from hsimhash.dedup.outputs import DEDUP_AGAIN, DROP, KEEP, REJECTS, STATS, table_in
from hsimhash.dedup.tables import read_column_values
from hsimhash.errors import HsimhashError, Remedy
from hsimhash.inputs.files import COPIED_KINDS, Input, InputOptions
from hsimhash.inputs.reader import documents_of, parsed_blocks
from hsimhash.inputs.records import Documents

Which = Literal["kept", "dropped", "all"]
_REMEDY = Remedy(
    "pass the inputs that were given to dedup, or call dedup again",
    "pass the inputs that were given to 'hsimhash dedup', or run it again",
)
FILES_NAMED = 5  # maximum number of unread files to name
_NEVER_MS = 1 << 63  # for results of older versions, which do not say when the dedup began
_LINES = ("jsonl", "tsv", "fingerprints")  # formats with one record per line


@dataclass(slots=True)
class Applied:
    """Numbers of records: written, left out because of `which`, rejected, and repeated.

    `missing` is the number of documents in the results that were not in the inputs. `unread` is the number of rejected
    records that are whole files, and `unread_files` lists the first of these files. `changed` and `changed_files` are
    for files that were dropped but are kept now, because they or the files kept for them were modified after the dedup
    began, or because the files kept for them are missing.
    """

    written: int = 0
    left_out: int = 0
    rejected: int = 0
    repeated: int = 0
    missing: int = 0
    unread: int = 0
    unread_files: list[str] = field(default_factory=list)
    changed: int = 0
    changed_files: list[str] = field(default_factory=list)


def reading_of_run(folder: Path) -> InputOptions:
    """Return how the dedup that wrote `folder` read its inputs.

    Raises:
        ValueError: `folder` does not have complete results.
        HsimhashError: Its stats.json cannot be read.
    """
    table_in(folder, "clusters")
    with _stats_of(folder) as stats:
        reading, found = reading_from(stats["options"]), stats.get("read_as", [])
        formats, written = ({one.get(name, "auto") for one in found} for name in ("format", "fingerprint_format"))
    if reading.format == "auto" and len(formats) == 1 and formats <= set(_LINES):  # stdin has no suffix
        reading = replace(reading, format=formats.pop())
    return replace(reading, fingerprint_format=written.pop()) if len(written) == 1 else reading


def apply(
    inputs: Sequence[Input],
    folder: Path,
    which: Which,
    write: Callable[[bytes], object],
    say: Callable[[str], object],
) -> Applied:
    """Write the records that the results in `folder` keep or drop, in input order. The inputs are not changed.

    Records are written unchanged, except that with `all`, a JSON record gets the fields `cluster` and `kept`, and any
    other record gets two more columns. For a folder of texts, the paths of its files are written.

    Args:
        inputs: Inputs of the dedup, found with the options from `reading_of_run`.
        folder: Folder with the results of the dedup.
        which: Records to write.
        write: Called with one line at a time, without its newline.
        say: Called with messages for the user.

    Raises:
        ValueError: `folder` does not have complete results, a document is not in the results, none of the documents in
            the results is in the inputs, or an input is a table or a web archive.
    """
    for one in inputs:
        if one.kind not in COPIED_KINDS and not one.problem:
            files = Remedy('format="files"', "--format files")
            raise ValueError(
                f"cannot copy records from {one.name}, because it does not have one record per line; "
                f"{folder / KEEP} lists the ids to keep"
                + ("; to read each file in the folder as one text, run dedup again with " + files if one.folder else "")
            )
    application, reading = _Application(folder, which), reading_of_run(folder)
    application.find_changes(inputs)
    for one, name in zip(inputs, _names_in_run(folder, inputs), strict=True):
        if one.kind != "files" and application.has_changed(one, one.name):
            say(f"{one.name} was modified after dedup began, so the results may be out of date; run dedup again")
        for documents, lines in _records(one, reading):
            application.take_rejects(documents, one)
            if documents.note:
                say(f"{one.name}: {documents.note}")
            if documents.damage:
                where = f"{one.name}:{documents.rejects[0].line}"
                say(f"{where}: {documents.damage}; earlier records are written")
            for line in application.chosen(one, name, documents, lines):
                write(line + b"\n")
                application.count.written += 1
    application.end()
    return application.count


def _names_in_run(folder: Path, inputs: Sequence[Input]) -> list[str]:
    """Return the name that each input had in the dedup; the same files may now have other names or be piped."""
    with _stats_of(folder) as stats:
        names = stats.get("inputs", [])
    return names if len(names) == len(inputs) else [shown_path(one.name) for one in inputs]


def _records(one: Input, reading: InputOptions) -> Iterator[tuple[Documents, list[bytes]]]:
    """Yield the documents of an input in batches, with their lines; for a folder of texts, with their paths."""
    if one.problem:
        yield from ((documents, []) for documents, _ in documents_of(one, reading))
    elif one.kind == "files":
        for documents, _ in documents_of(one, reading):
            yield documents, [os.fsencode(one.path_of(doc_id)) for doc_id in documents.doc_ids]
    else:
        for block, documents in parsed_blocks(one, reading):
            lines = block.lines()
            yield documents, [lines[number - block.first] for number in documents.lines]


class _Application:
    def __init__(self, folder: Path, which: Which) -> None:
        clusters = table_in(folder, "clusters")
        self._folder = folder
        self._which = which
        self._first_reject = ""
        self._kept_again = set[str]()  # ids of dropped files that are kept, see `Applied.changed`
        with _stats_of(folder) as stats:
            self._began_s: float = stats.get("run", {}).get("began_ms", _NEVER_MS) / 1000
        self.is_kept: dict[str, bool | None] = {}  # None: already seen in the inputs
        for path, is_kept in ((folder / KEEP, True), (folder / DROP, False)):
            with _naming_damage(path), path.open(encoding="utf-8", newline="\n") as lines:
                self.is_kept.update((line.removesuffix("\n"), is_kept) for line in lines)
        self._rejected: set[tuple[str, int]] = set()  # file and line
        if (path := folder / REJECTS).exists():
            with _naming_damage(path), path.open(encoding="utf-8", errors="surrogatepass") as lines:
                found = map(json.loads, lines)
                self._rejected.update((shown_path(reject["file"]), reject["line"]) for reject in found)
        self._cluster_of: dict[str, str] = {}  # only for documents whose cluster is named after another id
        if which == "all":
            with _naming_damage(clusters):
                rows = read_column_values(clusters, ("id", "cluster"))
                self._cluster_of = {str(doc_id): str(cluster) for doc_id, cluster in rows if doc_id != cluster}
        self.count = Applied()

    def take_rejects(self, documents: Documents, one: Input) -> None:
        for reject in documents.rejects:
            self._reject(one, reject.path or one.name)
        if documents.rejects and not self._first_reject:
            first = documents.rejects[0]
            self._first_reject = f"{first.path or one.name}:{first.line}: {first.reason}"

    def _reject(self, one: Input, path: str) -> None:
        self.count.rejected += 1
        if one.kind == "files":
            self.count.unread += 1
            if len(self.count.unread_files) < FILES_NAMED:
                self.count.unread_files.append(path)

    def has_changed(self, one: Input, path: str) -> bool:
        """Whether a file was modified or replaced after the dedup began; false if it cannot be read."""
        if one.is_stream or one.remote:
            return False
        with suppress(OSError):
            status = Path(path).stat()
            return max(status.st_mtime, status.st_ctime) > self._began_s  # copies may have an old time of modification
        return False

    def find_changes(self, inputs: Sequence[Input]) -> None:
        """Find the dropped files that must be kept now; see `Applied.changed`."""
        files = [one for one in inputs if one.kind == "files" and not one.problem]
        found = {doc_id: self.has_changed(one, path) for one in files for doc_id, path in one.documents_in()}
        self._kept_again.update(doc_id for doc_id, has_changed in found.items() if has_changed)
        is_missing = len(files) == len(inputs)  # otherwise, the kept document may be a record
        if not self._kept_again and not (is_missing and any(one not in found for one in self.is_kept)):
            return
        clusters = table_in(self._folder, "clusters")
        with _naming_damage(clusters):
            for doc_id, kept in read_column_values(clusters, ("id", "kept_id")):
                if doc_id != kept and kept in self.is_kept and found.get(str(kept), is_missing):
                    self._kept_again.add(str(doc_id))

    def _keep_changed(self, path: str) -> None:
        self.count.changed += 1
        if len(self.count.changed_files) < FILES_NAMED:
            self.count.changed_files.append(path)

    def end(self) -> None:
        """Count documents without a record; raise `ValueError` if no document has a record, to prevent any output."""
        self.count.missing = sum(is_kept is not None for is_kept in self.is_kept.values())
        if self.count.missing and self.count.missing == len(self.is_kept):
            expected = next(iter(self.is_kept))
            raise ValueError(
                f"none of the input records are in the results in {self._folder}: "
                f"expected ids such as {expected!r:.200}, "
                f"{f'but {self._first_reject}' if self._first_reject else 'got no records'}; " + _REMEDY
            )

    def _is_rejected(self, one: Input, name: str, documents: Documents, place: int) -> bool:
        if one.kind == "files":
            return (shown_path(replace(one, name=name).path_of(documents.doc_ids[place])), 1) in self._rejected
        return (name, documents.lines[place]) in self._rejected

    def chosen(self, one: Input, name: str, documents: Documents, lines: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the output for documents; `name` is the name that the input had in the dedup."""
        marked = _marked_json if one.kind == "jsonl" else _marked_columns
        for place, (doc_id, line) in enumerate(zip(documents.doc_ids, lines, strict=True)):
            is_first = self.is_kept.get(doc_id, True) is not None
            if is_first and self._is_rejected(one, name, documents, place):
                self._reject(one, one.path_of(doc_id))
                continue
            if doc_id not in self.is_kept:
                where = f"{one.name}:{documents.lines[place]}" if one.kind != "files" else one.name
                expected = next(iter(self.is_kept), None)
                such = f"expected ids such as {expected!r:.200}" if expected else "they are empty"
                raise ValueError(
                    f"{where}: {doc_id!r:.200} is not in the results in {self._folder}: {such}; " + _REMEDY
                )
            is_kept, self.is_kept[doc_id] = self.is_kept[doc_id], None
            if is_kept is False and one.kind == "files" and doc_id in self._kept_again:
                is_kept = True
                self._keep_changed(one.path_of(doc_id))
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
    if b'"cluster"' in record or b'"kept"' in record:  # the record may have these fields, which are then replaced
        text = json.dumps({**json.loads(record.decode("utf-8-sig")), **fields}, ensure_ascii=False)
        return text.encode("utf-8", "backslashreplace")  # a lone surrogate becomes a JSON escape
    return record[:-1] + b", " + json.dumps(fields, ensure_ascii=False).encode()[1:]


def _marked_columns(line: bytes, cluster: str, is_kept: bool) -> bytes:
    return b"\t".join([line.removesuffix(b"\r"), cluster.encode(), b"true" if is_kept else b"false"])


@contextmanager
def _stats_of(folder: Path) -> Iterator[dict[str, Any]]:
    """Provide the content of stats.json; if it is damaged, raise `HsimhashError`."""
    with _naming_damage(folder / STATS):
        yield json.loads((folder / STATS).read_text(encoding="utf-8"))


@contextmanager
def _naming_damage(path: Path) -> Iterator[None]:
    """Reraise errors from reading results with the name of the file and the remedy."""
    try:
        yield
    except (OSError, ValueError, KeyError) as error:
        raise HsimhashError(f"{path} cannot be read: {error}; " + DEDUP_AGAIN) from error

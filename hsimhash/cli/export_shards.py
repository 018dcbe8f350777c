"""`hsimhash export --shards`: write the documents in an index on HBase to several files, one process per file."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hsimhash.cli.console import say
from hsimhash.cli.output_files import complete, written
from hsimhash.errors import plural
from hsimhash.extras import arrow_needed, install_command
from hsimhash.files import make_folder, write_json
from hsimhash.index import opened_index
from hsimhash.processes import Workers, completed
from hsimhash.progress import Observer
from hsimhash.store import Document, Opening, store_name
from hsimhash.store.base import JOB_DEADLINE_S
from hsimhash.store.capabilities import Shard

SHARD_FORMATS = ("jsonl", "jsonl.gz", "jsonl.zst", "tsv", "tsv.gz", "tsv.zst", "parquet")
PLAN = "shards.json"
ROW_GROUP_DOCUMENTS = 100_000


@dataclass(frozen=True, slots=True)
class ExportFile:
    """One of the `count` files that an export writes to a folder."""

    url: str
    number: int
    count: int
    folder: Path
    form: str

    @property
    def path(self) -> Path:
        """The path of the finished file."""
        return self.folder / f"part-{self.number:05d}-of-{self.count:05d}.{self.form}"


def export_shards(
    url: str, folder: Path, count: int, form: str, workers: int | None, observer: Observer, shard: Shard | None = None
) -> int:
    """Write the missing files of `folder`, or those of one shard; return how many documents were written.

    Raises:
        ValueError: The folder contains something else, or a package is missing.
    """
    if form == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise ValueError(
            f"Parquet needs pyarrow; install it with {install_command('parquet')}, or choose another --format"
        )
    files = [ExportFile(url, number, count, folder.absolute(), form) for number in range(count)]
    _begin(files[0])
    mine = [one for one in files if shard is None or shard.has(one.number)]
    left = [one for one in mine if not one.path.exists()]
    if len(left) < len(mine):
        say(f"keeping {plural(len(mine) - len(left), 'file')} already written to {folder}")
    done = 0
    with Workers(min(workers or os.cpu_count() or 1, max(len(left), 1))) as pool:
        for number, one in enumerate(completed([pool.submit(write_file, one) for one in left]), start=1):
            done += one.result()
            observer.report("export", len(mine) - len(left) + number, len(mine), done)
    return done


def _begin(first: ExportFile) -> None:
    """Record in the folder what the export writes, unless another machine has already done so."""
    plan = {"store": store_name(first.url), "shards": first.count, "format": first.form}
    folder, path = first.folder, first.folder / PLAN
    draft = folder / f".{PLAN}.{secrets.token_hex(4)}"
    if not path.exists():
        there = [one.name for one in folder.iterdir()] if folder.exists() else []
        if any(not name.startswith(f".{PLAN}.") for name in there) and not path.exists():
            raise ValueError(f"{folder} is not empty and does not contain an export; choose another --output")
        make_folder(folder)
        write_json(draft, plan)
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        except OSError:  # the file system does not support links
            draft.replace(path)
        draft.unlink(missing_ok=True)
    begun = json.loads(path.read_text(encoding="utf-8"))
    if begun != plan:
        raise ValueError(f"{folder} contains files from another export ({begun}); choose another folder")


def write_file(one: ExportFile) -> int:
    """Write one file; return its number of documents."""
    with opened_index(one.url, Opening(JOB_DEADLINE_S)) as index:
        pages = index.store.registered(one.number, one.count)
        if one.form == "parquet":
            return write_parquet(str(one.path), pages)
        line_of, done = tsv_line if one.form.startswith("tsv") else json_line, 0
        with written(str(one.path)) as write:
            for page in pages:
                write(b"".join(map(line_of, page)))
                done += len(page)
        return done


def write_parquet(output: str, pages: Iterable[list[Document]]) -> int:
    """Write documents as Parquet, with sketches and keys in hex as `ingest` reads them; return their number."""
    pa, pq = arrow_needed("Parquet")
    types = {"fingerprint": pa.uint64(), "first_seen": pa.int64(), "sketch": pa.string(), "key": pa.string()}
    schema, done = pa.schema([("id", pa.string()), *types.items()]), 0
    with complete(output) as stream, pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        for group in _groups(pages):
            ids, fingerprints, first_seen, *others = zip(*group, strict=True)
            columns = [
                ids,
                fingerprints,
                first_seen,
                *([f"{one:016x}" if one else None for one in column] for column in others),
            ]
            writer.write_table(pa.table([pa.array(*pair) for pair in zip(columns, schema.types, strict=True)], schema))
            done += len(group)
    return done


def _groups(pages: Iterable[list[Document]]) -> Iterator[list[Document]]:
    held: list[Document] = []
    for page in pages:
        held += page
        if len(held) >= ROW_GROUP_DOCUMENTS:
            yield held
            held = []
    if held:
        yield held


def json_line(document: Document) -> bytes:
    """Return a document as a line that `ingest` reads with --fingerprint-field fingerprint."""
    fields = {"id": document.doc_id, **document.signature.to_json(), "first_seen": document.first_seen}
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def tsv_line(document: Document) -> bytes:
    """Return a document as a line: id, tab, fingerprint."""
    return f"{document.doc_id}\t{document.fingerprint:016x}\n".encode()

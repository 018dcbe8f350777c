"""`hsimhash demo`: the sample corpus goes in, its near-duplicates come out, and both are compared with the truth."""

from __future__ import annotations

import json
import time

import click

from hsimhash import sample
from hsimhash.cli import demo_report
from hsimhash.errors import IndexExistsError, IndexNotFoundError
from hsimhash.index import HSimIndex
from hsimhash.inputs import find_inputs
from hsimhash.load import IngestOptions, ingest

DEMO_STORE = "lmdb://.demo/index"


@click.command("demo")
@click.option("--store", default=DEMO_STORE, show_default=True, metavar="URL", help="Where to put the demo's index.")
@click.option("--fresh/--keep", default=True, help="Start over, or use the index that an earlier demo left.")
def demo_command(store: str, fresh: bool) -> None:
    """Index a small sample corpus and show the near-duplicates found in it.

    Some 370 short documents in Chinese and English go in; every pair within the layout's distance comes out and is
    compared with the truth that lies beside the sample.

    \b
    Example:
      hsimhash demo
      hsimhash demo --store lmdb:///tmp/demo --keep
    """
    started = time.perf_counter()
    texts = _read_texts()
    with _demo_index(store, texts, fresh=fresh) as index:
        outcome = demo_report.evaluate(index, texts)
        demo_report.report(index, outcome, time.perf_counter() - started)


def _read_texts() -> dict[str, str]:
    with sample.documents().open(encoding="utf-8") as lines:
        return {record["id"]: record["text"] for record in map(json.loads, lines)}


def _demo_index(store: str, texts: dict[str, str], *, fresh: bool) -> HSimIndex:
    """Return the index at `store`, the sample in it."""
    try:
        index = HSimIndex.open(store)
    except IndexNotFoundError:
        index = HSimIndex.create(store)
    try:
        _refuse_foreign(index, texts)
        if fresh and index.count():
            click.echo(f"starting over: {index.remove(list(texts))} documents of an earlier demo removed", err=True)
        if not index.count():
            _fill(index)
    except BaseException:
        index.close()
        raise
    return index


def _refuse_foreign(index: HSimIndex, texts: dict[str, str]) -> None:
    """Raise `IndexExistsError` where the index holds documents that are none of the sample's."""
    for document in index.documents():
        if document.doc_id not in texts:
            raise IndexExistsError(
                f"{index.url} holds documents that are not the demo's, such as {document.doc_id!r}; "
                f"nothing was changed; choose another --store"
            )


def _fill(index: HSimIndex) -> None:
    options = IngestOptions(workers=1, fresh=True)  # a process of its own would take longer to start than this takes
    ingest(index, find_inputs([str(sample.documents())], options.reading), options)

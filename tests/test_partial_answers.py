"""Partial answers: `missing` lists what silent servers leave out; also `partial=True` on other stores."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsimhash import HSimIndex, Matches, Profile, Signature
from hsimhash.aio import AsyncHSimIndex
from hsimhash.errors import IndexNotFoundError, StoreUnavailableError
from hsimhash.fingerprint.bits import Uint8s
from hsimhash.fingerprint.signature import Signatures
from hsimhash.layout import Layout
from hsimhash.rowkey import KEY_FLAG, RECORD_FLAG
from hsimhash.store import Document, Record
from hsimhash.store.capabilities import AnswersInPart
from hsimhash.store.hbase.gateway.base import UNANSWERED, Cell, Having, Unanswered
from hsimhash.store.hbase.gateway.batches import Range
from hsimhash.store.hbase.rows.protocol import Times
from hsimhash.store.hbase.store import HBaseStore
from tests.support.effort import tries
from tests.support.hbase_model import Cluster, ModelGateway
from tests.support.oracles import check_partial, crowds, signed

PROFILE = Profile.named("auto-2")
LAYOUTS = ("4", "10", "13,13,13,13,12/2")
URL = "hbase://model/partial"


class SilentGateway(ModelGateway):
    """A gateway to a cluster in which some ranges of rows do not answer, like those of a lost region server."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.silent: list[Range] = []
        self.tells_size = True

    def _is_silent(self, start: bytes, stop: bytes) -> bool:
        return any(start < end and stop > begin for begin, end in self.silent)

    def _answers(self, row: bytes) -> bool:
        return not self._is_silent(row, row + b"\x00")

    def scan_in_part(self, ranges: Sequence[Range]) -> tuple[Uint8s, list[Range]]:
        lost = [one for one in ranges if self._is_silent(*one)]
        return self.scan([one for one in ranges if one not in lost]), lost

    def cells_in_part(self, rows: Sequence[bytes], family: bytes, *, limit: int) -> list[list[Cell] | Unanswered]:
        return [self.cells(row, family, limit=limit) if self._answers(row) else UNANSWERED for row in rows]

    def get_in_part(self, keys: Sequence[tuple[bytes, bytes]], family: bytes) -> list[Cell | Unanswered | None]:
        return [self.get([key], family)[0] if self._answers(key[0]) else UNANSWERED for key in keys]

    def rows(
        self, start: bytes, stop: bytes, family: bytes, *, limit: int, columns: int = 1, having: Having | None = None
    ) -> list[list[Cell]]:
        if not self.tells_size:
            raise StoreUnavailableError("the model's gateway does not answer")
        return super().rows(start, stop, family, limit=limit, columns=columns, having=having)


def made(
    layout: str, stored: Sequence[Signature], profile: Profile = PROFILE
) -> tuple[HSimIndex, SilentGateway, list[Document]]:
    """Make an index with a document for each signature."""
    gateway = SilentGateway(Cluster())
    times = Times(clock=lambda: gateway.cluster.now / 1_000, wall_clock=lambda: gateway.cluster.now / 1_000)
    HBaseStore.create(URL, gateway, Record(Layout.parse(layout), profile.to_json()))
    index = HSimIndex(HBaseStore.open(URL, gateway, ask_times=lambda: times), profile)
    documents = [Document.of(f"{place}", signature, 0) for place, signature in enumerate(stored)]
    index.add_many(Signatures.collected(stored), [one.doc_id for one in documents], first_seen=0)
    return index, gateway, documents


ranges = st.tuples(st.integers(0, 255), st.integers(1, 256)).map(lambda edges: (bytes([edges[0]]), edges[1]))
silences = st.lists(ranges, max_size=3).map(
    lambda drawn: [(start, bytes([stop]) if stop < 256 else b"\xff" * 20) for start, stop in drawn]
)


@settings(max_examples=tries(400, 60))
@given(layout=st.sampled_from(LAYOUTS), silent=silences, data=st.data())
@pytest.mark.parametrize("name", ["auto-2", "auto-3"])
def test_what_is_left_out_has_all_its_drawers_among_the_missing_ones(
    name: str, layout: str, silent: list[Range], data: st.DataObject
) -> None:
    profile = Profile.named(name)
    keying = profile.key_kind
    index, gateway, documents = made(layout, data.draw(signed(crowds(12, least=1), keying)), profile)
    queries = data.draw(signed(crowds(6), keying))
    distance = data.draw(st.integers(0, 6))
    gateway.silent, gateway.tells_size = silent, data.draw(st.booleans())
    assert isinstance(index.store, AnswersInPart)
    with index.store.view_in_part() as view:
        cover = index.cover(distance, queries=max(len(queries), 1), view=view)
        alone = index.cover(distance, view=view)
    batch = index.query_many(queries, max_distance=distance, partial=True)
    for query, one in zip(queries, batch, strict=True):
        check_partial(one, query, documents, cover, keying)
        check_partial(index.query(query, max_distance=distance, partial=True), query, documents, alone, keying)
        limited = index.query(query, max_distance=distance, limit=2, partial=True)
        if not limited.missing:
            assert limited == index.query(query, max_distance=distance, limit=2)
        if not silent:
            assert not one.missing


def test_an_answer_in_part_names_the_drawers_that_are_silent() -> None:
    query = Signature(0x0123456789ABCDEF, 0, 5)
    index, gateway, _ = made("4", [query])
    gateway.silent = [(b"\x45", b"\x46"), (b"\xcd", b"\xce")]  # segments 4567 and cdef, in drawers 2 and 4
    found = index.query(query, partial=True)
    assert [match.doc_id for match in found] == ["0"]
    assert found.missing == (2, 4)


def test_documents_that_cannot_be_read_count_for_the_drawers_that_have_them() -> None:
    query = Signature(0x0123456789ABCDEF)
    index, gateway, _ = made("4", [query, Signature(query.fingerprint ^ 1)])
    (register,) = [row for _, row, qualifier in gateway.cluster._cells if qualifier == b"1" and row[4] == 254]
    gateway.silent = [(register, register + b"\x00")]
    found = index.query(query, partial=True)
    assert [match.doc_id for match in found] == ["0"]
    assert found.missing == (1, 2, 3)  # the two documents differ in drawer 4


def test_whether_the_index_was_replaced_is_not_known_without_its_record() -> None:
    index, gateway, _ = made("4", [Signature(7)])
    gateway.silent = [(b"\x00\x00\x00\x00\xff", b"\x00\x00\x00\x01")]
    assert index.query(7, partial=True).missing == ()  # the record was there a moment ago
    gateway.cluster.advance(60_000)
    assert index.query(7, partial=True).missing == (RECORD_FLAG,)


def test_an_index_that_was_replaced_is_an_error_in_part_too() -> None:
    index, gateway, _ = made("4", [Signature(7)])
    gateway.cluster.clear()
    gateway.cluster.advance(60_000)
    with pytest.raises(IndexNotFoundError):
        index.query(7, partial=True)


def test_a_store_that_does_not_answer_at_all_misses_every_drawer() -> None:
    index, gateway, _ = made("4", [Signature(7, 0, 5)])
    gateway.silent = [(b"", b"\xff" * 20)]
    gateway.cluster.advance(60_000)
    assert index.query(7, partial=True).missing == (1, 2, 3, 4, RECORD_FLAG)
    assert [one.missing for one in index.query_many([Signature(7, 0, 5)], partial=True)] == [
        (1, 2, 3, 4, KEY_FLAG, RECORD_FLAG)
    ]


@pytest.fixture(params=["memory", "lmdb"])
def embedded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HSimIndex]:
    url = f"lmdb://{tmp_path}/pages" if request.param == "lmdb" else f"memory://{tmp_path.name}"
    with HSimIndex.create(url) as index:
        index.add_many(np.arange(9, dtype=np.uint64), [f"{number}" for number in range(9)])
        yield index


def test_an_embedded_index_misses_nothing(embedded: HSimIndex) -> None:
    whole = embedded.query(5)
    found = embedded.query(5, partial=True, timeout=60)
    assert len(whole) == 9
    assert found == whole
    assert found.missing == whole.missing == ()
    assert embedded.query_many([5, 6], partial=True) == embedded.query_many([5, 6])
    assert asyncio.run(AsyncHSimIndex(embedded).query(5, partial=True)) == whole


def test_an_answer_keeps_its_missing_drawers_in_another_process() -> None:
    sent = pickle.loads(pickle.dumps(Matches.in_part([], (2, 4))))
    assert sent == []
    assert sent.missing == (2, 4)

"""Queries while a region server is killed: exact ones wait, partial ones end in time and list what they miss."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hsimhash import HSimIndex, Matches, Profile, Signature
from hsimhash.errors import StoreTimeoutError
from hsimhash.fingerprint.signature import Signatures
from hsimhash.layout import Layout
from hsimhash.store import Document, Record
from hsimhash.store.hbase.gateway.table import TableSettings
from hsimhash.store.hbase.operations import create_at
from tests.support.fingerprint_sets import half_near, random_fingerprints
from tests.support.hbase_cluster import HBaseCluster, cluster
from tests.support.hbase_server import or_skip
from tests.support.hbase_tables import new_table
from tests.support.oracles import check_partial

pytestmark = pytest.mark.together
PROFILE = Profile.named("auto-2")
REGIONS, DOCUMENTS, QUERIES, THREADS = 16, 2_000, 200, 4
TIMEOUT_S = 2.0
LATE_S = 1.0  # allowed beyond the time-out on a busy machine
OUTAGE_S = 120.0  # by then the other server has the regions


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HBaseCluster]:
    with or_skip(), cluster(tmp_path_factory.mktemp("partial") / "hbase", region_servers=3) as servers:
        yield servers


def test_partial_queries_end_in_time_and_name_what_a_killed_server_hides(servers: HBaseCluster) -> None:
    rng = np.random.default_rng(3)
    values = random_fingerprints(rng, DOCUMENTS)
    stored = [Signature(value, 0, (1 + place % 500) << 40) for place, value in enumerate(values.tolist())]
    documents = [Document.of(f"{place}", signature, 0) for place, signature in enumerate(stored)]
    asked = [
        Signature(value, 0, (1 + place % 600) << 40)
        for place, value in enumerate(half_near(rng, values, QUERIES, 3).tolist())
    ]
    starts = tuple(bytes([place * 256 // REGIONS]) for place in range(1, REGIONS))
    with new_table(servers) as name:
        url = f"hbase://{servers.host}:{servers.thrift2_port}/{name}"
        create_at(url, Record(Layout.named("10"), PROFILE.to_json()), TableSettings(splits=starts)).close()
        with HSimIndex.open(url) as index, ThreadPoolExecutor(THREADS) as threads:
            index.add_many(Signatures.collected(stored), [one.doc_id for one in documents], first_seen=0)
            cover = index.cover()
            late = list[float]()

            def timed(call: Callable[[], list[Matches]]) -> list[Matches]:
                began = time.monotonic()
                found = call()
                took_s = time.monotonic() - began
                if took_s > TIMEOUT_S + LATE_S:
                    late.append(took_s)
                return found

            def one(query: Signature) -> Matches:
                return timed(lambda: [index.query(query, partial=True, timeout=TIMEOUT_S)])[0]

            def answers() -> list[Matches]:
                """Return the answers to all queries: first asked in one batch, then one by one."""
                batch = timed(lambda: index.query_many(asked, partial=True, timeout=TIMEOUT_S))
                found = batch + list(threads.map(one, asked))
                for query, answer in zip(asked * 2, found, strict=True):
                    check_partial(answer, query, documents, cover)
                return found

            whole = index.query_many(asked)
            assert [index.query(query, partial=True) for query in asked] == whole
            servers.kill(servers.region_servers[-1])
            end_s, in_part = time.monotonic() + OUTAGE_S, list[Matches]()
            with pytest.raises(StoreTimeoutError):
                list(threads.map(lambda query: index.query(query, timeout=TIMEOUT_S), asked))
            found = answers()
            while any(one.missing for one in found):
                assert time.monotonic() < end_s
                in_part += found
                found = answers()
            assert found == whole * 2
            assert not late
            # The number of partial answers depends on how soon the regions move to the other server.
            assert any(one and 0 < len(one.missing) < len(cover.probes) for one in in_part)
        servers.start_region_server(servers.region_servers[-1])

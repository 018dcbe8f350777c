"""Short runs of the stress programs on PostgreSQL."""

from __future__ import annotations

from functools import partial
from itertools import count
from pathlib import Path

import pytest

from hsimhash.store.conformance.place import StorePlace
from tests.stress import serve_soak, stores_identity
from tests.stress.calls_exactness import SIZES, outcomes
from tests.stress.claims import on_postgresql
from tests.stress.exactness import check_layout, check_signatures
from tests.stress.stores_exactness import filled
from tests.stress.stores_kills import kill_server
from tests.support.effort import thorough
from tests.support.postgresql_server import PostgresqlServer, postgresql_serving
from tests.support.programs import faults

pytestmark = [pytest.mark.stress, pytest.mark.together]


@pytest.mark.parametrize("layout", ["4", "10"])
def test_no_match_is_missed_and_none_invented(postgresql: PostgresqlServer, tmp_path: Path, layout: str) -> None:
    fill = partial(filled, postgresql, tmp_path)
    assert faults(check_layout(layout, fill, 3_000, 100, (0, 3, 6))) == []
    assert faults(check_signatures(layout, fill, 2_000, 1_000, (3,))) == []


def test_random_calls_in_a_great_crowd_are_answered_as_brute_force_says(postgresql: PostgresqlServer) -> None:
    names = count(1)
    where = [StorePlace(lambda: postgresql.url(f"crowd{next(names)}"))]
    assert faults(outcomes(where, 300, SIZES[-1:])) == []


def test_kills_of_the_server_lose_nothing_that_was_acknowledged() -> None:
    with postgresql_serving() as server:
        assert faults(kill_server(server, 2)) == []


def test_serve_answers_right_through_restarts_of_itself_and_of_the_server(tmp_path: Path) -> None:
    shown = faults(serve_soak.outcomes("postgresql", tmp_path, 0.2))
    assert [text for text in shown if "/healthz" not in text] == []  # other tests that run at the same time delay it


def test_no_write_is_acknowledged_into_an_index_that_has_gone(tmp_path: Path) -> None:
    assert faults(stores_identity.outcomes("postgresql", tmp_path, rounds=5, seed=1, writers=2)) == []


@thorough
def test_of_claims_of_processes_that_are_killed_one_is_new(tmp_path: Path) -> None:
    outcome = on_postgresql(tmp_path, processes=4, count=2_000, most_kills=5)
    assert outcome.is_right, outcome.text

"""Kinds of stores: each is found by its schemes, and has the capabilities of its class."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from hsimhash.errors import HsimhashError
from hsimhash.store import Store, backend_of, backends, capable, create_store, new_record, registry
from hsimhash.store.capabilities import TITLES, Compacts
from hsimhash.store.hbase.store import HBaseStore
from hsimhash.store.lmdb.store import LmdbStore
from hsimhash.store.redis.store import RedisStore
from hsimhash.store.tables.store import TablesStore
from hsimhash.store.urls import holds_password, masked, may_be_url

pytestmark = pytest.mark.every_case
STORES: dict[str, type[Store]] = {
    "lmdb": LmdbStore,
    "hbase": HBaseStore,
    "redis": RedisStore,
    "tables": TablesStore,
}


def test_the_registry_has_the_schemes_of_its_backends() -> None:
    for module, schemes in registry._OWN.items():
        assert list(import_module(module).BACKEND.schemes) == schemes


@pytest.mark.parametrize("name", STORES)
def test_a_backend_has_the_capabilities_of_its_stores(name: str) -> None:
    able = {capability for capability in TITLES if issubclass(STORES[name], capability)}
    assert backends()[name].capabilities == able


@pytest.mark.parametrize(
    ("url", "near"), [("postgres://db1/crawl", "postgresql"), ("HBASE://gw1/pages", "hbase"), ("https://x/y", "")]
)
def test_the_nearest_scheme_is_suggested(url: str, near: str) -> None:
    with pytest.raises(ValueError, match="use a folder's path") as refused:
        backend_of(url)
    assert (f"did you mean {near}://?" in str(refused.value)) == bool(near)
    assert ("did you mean" in str(refused.value)) == bool(near)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("lmdb:/pages", "'lmdb:/pages' is not a store URL: lmdb: must be followed by //; use a folder's path"),
        (
            "postgresql:/me@db1/crawl?table=pages",
            "'postgresql:/…@db1/crawl?table=pages' is not a store URL: postgresql: ",
        ),
        ("postgresql:/me:secret@db1/crawl?table=pages", "'postgresql:/…@db1/crawl?table=pages' is not a store URL: "),
        ("redis://", "'redis://' is not a store URL: nothing follows redis://; use"),
    ],
)
def test_a_missing_slash_is_named_and_the_scheme_is_shown(url: str, message: str) -> None:
    with pytest.raises(ValueError, match="use a folder's path") as refused:
        backend_of(url)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("scheme", registry._MODULES)
def test_every_scheme_is_shown_even_if_a_slash_is_missing(scheme: str) -> None:
    assert masked(f"{scheme}:/me:secret@host/x") == f"{scheme}:/…@host/x"
    assert holds_password(f"{scheme}:/me:secret@host/x")
    assert may_be_url(f"{scheme}:/me@host/x")


def test_what_a_store_cannot_do_is_refused_with_what_to_do_instead() -> None:
    url = "memory://incapable"
    with (
        create_store(url, new_record(url, {"name": "test-1"})) as store,
        pytest.raises(HsimhashError, match="does not support compaction; an index on LMDB, embedded does"),
    ):
        capable(store, Compacts)


def test_a_store_of_another_package_is_found_and_a_broken_one_is_named(tmp_path: Path) -> None:
    info = tmp_path / "others-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[hsimhash.stores]\nother = others:BACKEND\nbroken = others_broken:BACKEND\nwrong = others:ROWS\n"
    )
    (tmp_path / "others.py").write_text("from hsimhash.store.memory import BACKEND\nROWS = 1\n")
    (tmp_path / "others_broken.py").write_text("import no_such_client\n")
    program = (
        "from hsimhash.store import backend_of\n"
        "print(backend_of('other://x').title)\n"
        "for url in ('broken://x', 'wrong://x', 'nothing://x'):\n"
        "    try:\n        backend_of(url)\n"
        "    except Exception as error:\n        print(type(error).__name__, error)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    memory, broken, wrong, nothing = told.stdout.splitlines()
    assert memory == backend_of("memory://x").title
    assert "cannot import the store broken:// from others_broken:BACKEND: No module named 'no_such_client'" in broken
    assert "must be an instance of hsimhash.store.Backend" in wrong
    assert nothing.startswith("ValueError 'nothing://x' is not a store URL: use a folder's path")

"""First calls on an embedded index: a forked process already has all modules. Other stores: see integration."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsimhash import HSimIndex
from tests.support.first_calls import imported_by_first_calls


@pytest.mark.parametrize("layout", ["4", "10"])
def test_the_first_calls_of_a_forked_process_import_no_module(tmp_path: Path, layout: str) -> None:
    url = f"lmdb://{tmp_path}/pages"
    HSimIndex.create(url, layout=layout).close()
    assert imported_by_first_calls(url) == {}

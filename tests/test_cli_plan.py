"""`hsimhash plan`: the numbers it accepts and the sizes it prints; `test_plan.py` tests the rest."""

import json
import random
from pathlib import Path

import pytest

from hsimhash.store import backends
from tests.support.command_line import run
from tests.support.effort import thorough


@pytest.mark.parametrize("documents", ["0", "1e18", str(10**18), str(10**30), "1.5", "-1", "50X", ""])
def test_number_of_documents_beyond_sense_is_misuse(documents: str) -> None:
    result = run("plan", "--documents", documents)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--documents" in result.stderr


def test_most_documents_have_readable_sizes() -> None:
    result = run("plan", "--documents", str(10**15), "--store", "lmdb")
    assert result.exit_code == 0
    assert "186.5 PiB" in result.stdout


@thorough
def test_without_a_store_each_one_has_a_row_and_all_fits_on_a_screen() -> None:
    lines = run("plan", "--documents", "50M").stdout.splitlines()
    assert len(lines) <= 30
    for name, kind in backends().items():
        row = next(line for line in lines if line.strip().startswith(f"{name} "))
        assert row.split()[1] == str(kind.max_distance)


@pytest.mark.parametrize(
    ("store", "name"),
    [*((name, name) for name in backends()), ("lmdb://pages", "lmdb"), ("hbase://gw1/pages", "hbase")],
)
def test_a_store_is_compared_alone(store: str, name: str) -> None:
    facts = json.loads(run("plan", "--documents", "1e6", "--store", store, "--json").stdout)
    assert list(facts) == [name]
    assert (
        f"create-table --layout {facts[name]['recommended']} "
        in run("plan", "--documents", "1e6", "--store", store).stdout
    )


def test_an_unknown_store_is_refused_without_what_may_be_secret() -> None:
    refused = run("plan", "--documents", "1", "--store", "postgres://me:secret@host/db")
    assert refused.exit_code == 2
    assert "expected lmdb, hbase, postgresql, redis" in refused.stderr
    assert "secret" not in refused.stderr


def hottest(path: Path, *options: str) -> list[int]:
    result = run("plan", "--documents", "1000000", "--sample", str(path), "--json", *options)
    assert result.exit_code == 0, result.stderr
    return [int(layout["hottest_bucket"]) for layout in json.loads(result.stdout)["lmdb"]["layouts"]]


@thorough
def test_a_sample_is_read_in_one_format(tmp_path: Path) -> None:
    values = [1291587514616409, *range(10**17, 10**17 + 300), *range(10**15, 10**15 + 300)]
    (tmp_path / "hex").write_text("".join(f"{value:016x}\n" for value in values))
    (tmp_path / "decimal").write_text("".join(f"id\t{value}\n" for value in values))
    assert hottest(tmp_path / "decimal") == hottest(tmp_path / "hex")
    (tmp_path / "ambiguous").write_text("".join(f"{value}\n" for value in values if len(str(value)) == 16))
    result = run("plan", "--documents", "1000000", "--sample", str(tmp_path / "ambiguous"))
    assert result.exit_code == 2
    assert "--fingerprint-format hex|decimal|signed" in result.stderr
    assert hottest(tmp_path / "ambiguous", "--fingerprint-format", "hex")


def test_regions_are_split_by_a_sample_in_the_format_that_is_said(tmp_path: Path) -> None:
    rng = random.Random(1)
    (tmp_path / "sample").write_text("".join(f"{rng.randrange(10**15, 10**16)}\n" for _ in range(2_000)))
    table = (
        "create-table",
        "--print-commands",
        "--store",
        "hbase://gw/pages",
        "--splits-from",
        str(tmp_path / "sample"),
    )
    refused = run(*table)
    assert refused.exit_code == 2
    assert "--fingerprint-format hex|decimal|signed" in refused.stderr
    assert run(*table, "--fingerprint-format", "hex").exit_code == 0

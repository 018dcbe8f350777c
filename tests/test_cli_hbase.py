"""What the commands do for HBase without a server: shell lines and options."""

from pathlib import Path

import numpy as np
import pytest

from hsimhash.layout import Layout
from hsimhash.rowkey import splits
from tests.support.command_line import run

SCHEMA = Path(__file__).parents[1] / "schema"
STORE = "hbase://nowhere.invalid/crawl:pages"


def shell_lines(*options: str, store: str = STORE) -> list[str]:
    result = run("create-table", "--print-commands", "--store", store, *options)
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.parametrize("layout", ["4", "10"])
def test_the_scripts_in_schema_are_what_the_command_prints(layout: str) -> None:
    script = (SCHEMA / f"create-table-{layout}.hbase").read_text()
    lines = [line for line in script.splitlines() if not line.startswith("#")]
    assert lines == shell_lines("--layout", layout, store="hbase://gateway/hsimhash")
    assert f"--layout {layout}" in script


def test_the_lines_have_what_was_asked_for() -> None:
    namespace, create = shell_lines(
        *("--regions", "2", "--ttl", "90d", "--compression", "gz", "--family-option", "IN_MEMORY=true")
    )
    assert namespace == "create_namespace 'crawl' rescue nil"
    assert create.startswith("create 'crawl:pages', {NAME => 'f', ")
    assert r"SPLITS => ['\x80\x00\x00\x00']" in create
    assert (create.count("TTL => '7776000'"), create.count("COMPRESSION => 'GZ'")) == (2, 3)
    assert create.count("IN_MEMORY => 'true'") == 3
    assert "SPLITS" not in shell_lines("--regions", "1")[-1]


def test_splits_are_the_quantiles_of_the_sample(tmp_path: Path) -> None:
    fingerprints = np.random.default_rng(1).integers(0, 2**64, 500, np.uint64)
    sample = tmp_path / "sample.tsv"
    sample.write_text("".join(f"id{number}\t{value:016x}\n" for number, value in enumerate(fingerprints)))
    wanted = splits(Layout.named("4"), 3, sample=fingerprints)
    line = shell_lines("--layout", "4", "--regions", "3", "--splits-from", str(sample))[-1]
    for key in wanted:
        assert "".join(f"\\x{byte:02X}" for byte in key) in line


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--regions", "0"), "neither auto nor a number from 1 to 65536"),
        (("--regions", "65537"), "regions must be 1 to 65536, got 65537"),
        (("--ttl", "soon"), "'soon' is not a valid time"),
        (("--ttl", "0d"), "'0d' is not a valid time"),
        (("--ttl", "1.5s"), "expected a whole number of seconds, at least 1"),
        (("--ttl", "90.0"), "expected a whole number of seconds, at least 1, with a unit"),
        (
            ("--ttl", "90"),
            "'90' is not a valid time: expected a whole number of seconds, at least 1, with a unit (s, min",
        ),
        (("--ttl", "99999d"), "TTL must be 1 to 2**31 - 1 seconds (24,855 days), got 8639913600"),
        (("--compression", "ZIP"), "must be one of NONE, GZ, SNAPPY, LZ4, ZSTD, LZO, BZIP2, got 'ZIP'"),
        (("--family-option", "IN_MEMROY=true"), "unknown family option IN_MEMROY=true: expected one of BLOCKCACHE"),
        (("--family-option", "TTL=1"), "unknown family option TTL=1: expected one of"),
        (("--family-option", "IN_MEMORY"), "not a column family attribute"),
    ],
)
def test_options_that_cannot_be_are_misuse(options: tuple[str, ...], told: str) -> None:
    result = run("create-table", "--print-commands", "--store", STORE, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr


def test_a_sample_without_fingerprints_is_misuse(tmp_path: Path) -> None:
    sample = tmp_path / "sample"
    sample.write_text("id\tno fingerprint\n")
    result = run("create-table", "--print-commands", "--store", STORE, "--splits-from", str(sample))
    assert result.exit_code == 2
    assert f"{sample}:1" in result.stderr
    assert "--splits-from" in result.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--regions", "4"),
        ("--ttl", "1d"),
        ("--compression", "GZ"),
        ("--family-option", "IN_MEMORY=true"),
        ("--dry-run",),
        ("--print-commands",),
        ("--allow-plain",),
    ],
)
def test_options_of_hbase_are_misuse_elsewhere(options: tuple[str, ...], tmp_path: Path) -> None:
    result = run("create-table", "--store", f"lmdb://{tmp_path / 'pages'}", *options)
    assert result.exit_code == 2
    assert f"{options[0]} is for an index on HBase" in result.stderr
    assert ("hsimhash expire --before AGE" in result.stderr) == (options[0] == "--ttl")
    assert not (tmp_path / "pages").exists()


def test_compact_and_backup_print_the_shells_line_and_do_nothing() -> None:
    compact = run("compact", "--store", STORE)
    assert (compact.exit_code, compact.stdout) == (2, "major_compact 'crawl:pages'\n")
    backup = run("backup", "hdfs://nn/backups/2026-01-31", "--store", STORE)
    assert (backup.exit_code, backup.stdout) == (2, "snapshot 'crawl:pages', 'crawl-pages-2026-01-31'\n")
    assert "ExportSnapshot -snapshot crawl-pages-2026-01-31 -copy-to hdfs://nn/backups/2026-01-31" in backup.stderr
    named = run("backup", "monday", "--store", STORE)
    assert (named.exit_code, named.stdout) == (2, "snapshot 'crawl:pages', 'crawl-pages-monday'\n")
    assert "-copy-to" not in named.stderr
    assert "pass a URL" in named.stderr

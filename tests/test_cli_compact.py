"""`hsimhash compact`."""

import json
from pathlib import Path

from tests.support.command_line import ids_in, make_index, run


def test_it_gives_free_space_back_and_loses_nothing(tmp_path: Path) -> None:
    url = make_index(tmp_path, {f"d{number}": number * 0x9E3779B97F4A7C15 % 2**64 for number in range(3_000)})
    assert run("remove", *(f"d{number}" for number in range(2_900)), "--yes", "--store", url).exit_code == 0
    result = run("compact", "--store", url, "--json")
    assert result.exit_code == 0
    sizes = json.loads(result.stdout)
    assert sizes["bytes_after"] < sizes["bytes_before"] / 2
    assert ids_in(url) == sorted(f"d{number}" for number in range(2_900, 3_000))


def test_people_read_both_sizes(tmp_path: Path) -> None:
    shown = run("compact", "--store", make_index(tmp_path)).stdout.splitlines()
    assert [line.split()[0] for line in shown] == ["before", "after"]
    assert all(line.endswith("KiB") for line in shown)

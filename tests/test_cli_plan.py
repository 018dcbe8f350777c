"""`hsimhash plan`: the numbers it takes and the sizes it shows; `test_plan.py` has the rest."""

import pytest
from command_line import run


@pytest.mark.parametrize("documents", ["0", "1e18", str(10**18), str(10**30)])
def test_number_of_documents_beyond_sense_is_misuse(documents: str) -> None:
    result = run("plan", "--documents", documents)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--documents" in result.stderr


def test_most_documents_have_readable_sizes() -> None:
    result = run("plan", "--documents", str(10**15))
    assert result.exit_code == 0
    assert "183.8 PiB" in result.stdout

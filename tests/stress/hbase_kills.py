"""`kill -9` of ingests into HBase at random moments: `python -m tests.stress.hbase_kills [--kills 20]`.

The victims are `ingest` in bulk, with `exclusive=yes`, with `--on-duplicate skip` and `tag`, and `bulk-load`. The
program that loads files for `bulk-load` is not killed with it, and completes what it has begun. After every kill the
index is checked: it must not have problems, and must have every earlier document and everything acknowledged since. The
same command is resumed and killed again. At the end, documents, lists and counts are those of an undisturbed run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from hsimhash import HSimIndex
from tests.stress.hbase_crowd import table
from tests.stress.kill_ingests import Ingest, Trial
from tests.stress.kills import outcome, run, shares_of
from tests.support.hbase_server import HBaseServer, serving
from tests.support.hbase_tables import table_url
from tests.support.programs import options, print_conditions, print_outcomes, scratch_folder

SEED = 19
KILLS = 40
SHARES = {"bulk": 0.2, "exclusive": 0.1, "skip": 0.1, "tag": 0.1, "staged": 0.5}  # shares of all kills
DOCUMENTS = 1_500  # per ingest


@contextmanager
def begun(server: HBaseServer, ingest: Ingest, folder: Path) -> Iterator[Trial]:
    """Yield a trial: a table with the base documents, and a folder."""
    folder.mkdir()
    with table(server) as name:
        url = table_url(server, name)
        with HSimIndex.open(url) as index:
            ids, values = list(ingest.base_documents), list(ingest.base_documents.values())
            index.add_many([value for value, _ in values], ids, first_seen=[seen for _, seen in values])
        yield Trial(ingest, url, folder)


def main() -> int:
    given = options(__doc__, kills=(KILLS, "how many"))
    shares = shares_of(given.kills, SHARES)
    print_conditions("kill -9 of ingests into HBase", seed=SEED, kills=sum(shares.values()), documents=DOCUMENTS)
    with scratch_folder(given.scratch) as folder, serving(folder / "hbase") as server:
        begin, tool = partial(begun, server), ("--hbase-command", server.program())
        tally = run(shares, folder, documents=DOCUMENTS, seed=SEED, begin=begin, given=tool)
    return print_outcomes([outcome(tally)])


if __name__ == "__main__":
    sys.exit(main())

"""No match missed, none invented, on a real PostgreSQL: `python -m tests.stress.postgresql_exactness`.

Queries lie as in `exactness.py`, by fingerprint and by signature, single and in batches. Half of the documents come by
a bulk load, half as a crawler adds them.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from hsimhash import HSimIndex
from tests.stress.exactness import SEED, Given, Way, check_layout, check_signatures, profile_of
from tests.support.postgresql_server import PostgresqlServer, postgresql_serving
from tests.support.programs import options, print_conditions, print_outcomes, scratch_folder

LAYOUTS = ("4", "10")
STORED, QUERIES = 200_000, 2_000
DISTANCES = (0, 3, 4, 6)
SIGNED, SIGNED_QUERIES = 50_000, 500
MOST_BATCH_S = 60
BATCH = 1_000
_tables = itertools.count()


@contextmanager
def filled(server: PostgresqlServer, folder: Path, layout: str, fingerprints: Given) -> Iterator[list[Way]]:
    """Make an index and fill it; documents' ids are their positions."""
    table = f"exact_{next(_tables)}"
    with HSimIndex.create(server.url(table), layout=layout, profile=profile_of(fingerprints)) as index:
        half, load = len(fingerprints) // 2, index.bulk(folder / table)
        for start, stop in itertools.pairwise((0, half // 3, half)):
            load.add_run(fingerprints[start:stop], [str(number) for number in range(start, stop)], 0)
        load.merge()
        load.delete()
        for start in range(half, len(fingerprints), BATCH):
            part = fingerprints[start : start + BATCH]
            index.add_many(part, [str(number) for number in range(start, start + len(part))], first_seen=0)
        yield [("PostgreSQL", index, 1.0)]


def main() -> int:
    given = options(__doc__, stored=(STORED, "documents"), queries=(QUERIES, "queries of each distance"))
    print_conditions("PostgreSQL: exactness", packages=("psycopg",), seed=SEED, rows=given.stored, asked=given.queries)
    code = 0
    with scratch_folder(given.scratch) as folder, postgresql_serving() as server:
        fill = partial(filled, server, folder)
        for layout in LAYOUTS:
            code |= print_outcomes(
                check_layout(layout, fill, given.stored, given.queries, DISTANCES, most_batch_s=MOST_BATCH_S)
            )
            code |= print_outcomes(check_signatures(layout, fill, SIGNED, SIGNED_QUERIES))
    return code


if __name__ == "__main__":
    sys.exit(main())

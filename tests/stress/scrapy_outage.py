"""A crawl whose store is unavailable for a while: `python -m tests.stress.scrapy_outage [--seconds 10]`.

`tests/examples/scrapy_pages.py` claims its pages on its own HBase. In the middle of the crawl the gateway is suspended,
behind a proxy that keeps the connections. The crawl must continue without help: it must not lose or repeat a page, and
must find all planted near-duplicates.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hsimhash.index import HSimIndex
from tests.support.hbase_server import HBaseServer, serving
from tests.support.processes import stopped, wait_until
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder
from tests.support.tcp_proxy import proxied

EXAMPLE = Path(__file__).parents[1] / "examples" / "scrapy_pages.py"
AWAY_S = 10.0
CLAIMED = 60  # documents after which the gateway is suspended


def check(server: HBaseServer, away_s: float) -> Iterator[Outcome]:
    """Crawl with an outage; yield what must hold."""
    with proxied(server.thrift2_port, lambda _: 0) as proxy:
        url = f"hbase://127.0.0.1:{proxy.port}/outage?deadline=120s"
        with HSimIndex.create(url, distance=6) as index:  # as in the embedded index
            crawl = subprocess.Popen([sys.executable, str(EXAMPLE), "--json", "--store", url], stdout=subprocess.PIPE)
            wait_until(lambda: index.count() >= CLAIMED, crawl)
            before = index.count()
            with stopped(server.pid("thrift2")):
                time.sleep(away_s)
            told = json.loads(crawl.communicate()[0])
            stored = [document.doc_id for document in index.documents()]
    yield Outcome(before < 300, f"the gateway stood still for {away_s:g} s in the middle, at {before} documents")
    yield Outcome(
        crawl.returncode == 0 and "hsimhash/error" not in told, "the crawl goes on, and no item meets an error"
    )
    yield Outcome(sorted(stored) == told["kept"], f"{len(stored)} documents are stored: the pages kept, each once")
    groups = Counter(url.rpartition("/")[2] for url in told["kept"])
    yield Outcome(groups == {str(number): 1 for number in range(300)}, "of each group one page is kept, none is lost")
    counts = told["hsimhash/new"], told["hsimhash/duplicate"]
    yield Outcome(counts == (300, 200), f"new and duplicate: {counts}")


def main() -> int:
    given = options(__doc__ or "", seconds=(AWAY_S, "how long the gateway stands still"))
    print_conditions("a crawl whose store is away", packages=("scrapy",), seconds=given.seconds)
    with scratch_folder(given.scratch) as folder, serving(folder / "hbase") as server:
        return print_outcomes(check(server, given.seconds))


if __name__ == "__main__":
    sys.exit(main())

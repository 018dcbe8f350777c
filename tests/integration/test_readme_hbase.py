"""The commands on the HBase page, run exactly as written except for the address."""

from __future__ import annotations

from pathlib import Path

from tests.support.hbase_server import Gateways
from tests.test_readme import blocks, doc, run


def test_commands_run_and_find_the_near_duplicate(hbase: Gateways, tmp_path: Path) -> None:
    documents = next(block for block in blocks("sh") if "> pages.jsonl" in block)
    block = next(block for block in blocks("shell", doc("stores/hbase.md")) if "localhost:9091/pages" in block)
    lines = [line for line in block.splitlines() if not line.startswith("make ")]
    commands = "\n".join(lines).replace("localhost:9091/pages", f"{hbase.host}:{hbase.thrift2_port}/{tmp_path.name}")
    script = documents.partition("hsimhash ")[0] + commands
    assert '"id": "b"' in run(["bash", "-euc", script], tmp_path)

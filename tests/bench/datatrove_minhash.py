"""datatrove's MinHash with its defaults, a peer of `bench_spark_peers`: `datatrove_minhash.py TEXTS WORK`.

Runs in a separate environment without hsimhash. Prints how many seconds the four steps took; each line of
`WORK/pairs.csv` has the ids of a kept text and of one that is dropped because of it.
"""

import json
import sys
import time
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.readers import ParquetReader
from datatrove.pipeline.writers import JsonlWriter

PROCESSES = 2


def main(texts: str, work: str) -> None:
    folder, config = Path(work), MinhashConfig()
    reader = ParquetReader(texts, text_key="text", id_key="id")
    signatures, buckets, removed = (str(folder / name) for name in ("signatures", "buckets", "removed"))
    writers = [JsonlWriter(str(folder / name), compression=None) for name in ("dropped", "kept")]
    steps = [
        (PROCESSES, [reader, MinhashDedupSignature(signatures, config)]),
        (config.num_buckets, [MinhashDedupBuckets(signatures, buckets, config=config)]),
        (1, [MinhashDedupCluster(buckets, removed, config, save_cluster_id=True)]),
        (PROCESSES, [reader, MinhashDedupFilter(removed, writers[0], load_cluster_ids=True), writers[1]]),
    ]
    began = time.perf_counter()
    for number, (tasks, pipeline) in enumerate(steps):
        logs = str(folder / f"logs{number}")
        LocalPipelineExecutor(pipeline, tasks=tasks, workers=PROCESSES, logging_dir=logs).run()
    print(time.perf_counter() - began)
    kept = dict(rows(folder / "kept"))
    pairs = (f"{kept[cluster]},{dropped}\n" for cluster, dropped in rows(folder / "dropped"))
    (folder / "pairs.csv").write_text("left,right\n" + "".join(pairs))


def rows(folder: Path):
    """Yield the cluster and the id of each text in a folder that belongs to a cluster."""
    for path in folder.iterdir():
        with path.open(encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                if (cluster := row["metadata"].get("minhash_cluster_id", -1)) >= 0:
                    yield cluster, row["id"]


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The shortest scripts that find near-duplicates with MinHash libraries in Rust: `rust_minhash.py LIBRARY FILE OUT`.

LIBRARY is `gaoya` or `rensa`; FILE has JSON lines with `id` and `text`; OUT gets the pairs of documents whose
MinHash similarity is .7 or more, and for each document the first one of its cluster. gaoya uses all cores.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

THRESHOLD, PERMUTATIONS = 0.7, 128
GAOYA_BANDS, GAOYA_ROWS, RENSA_BANDS = 25, 5, 16


def pairs_by_gaoya(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    import gaoya

    index = gaoya.minhash.MinHashStringIndex(
        32, THRESHOLD, GAOYA_BANDS, GAOYA_ROWS, GAOYA_BANDS * GAOYA_ROWS, "char", True, (5, 5)
    )
    index.par_bulk_insert_docs(list(range(len(texts))), texts)
    for number, found in enumerate(index.par_bulk_query(texts)):
        yield from ((other, number) for other in found if other < number)


def pairs_by_rensa(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    import rensa

    from tests.bench.bench_native import shingles

    index, hashed = rensa.RMinHashLSH(THRESHOLD, PERMUTATIONS, RENSA_BANDS), []
    for number, text in enumerate(texts):
        own = rensa.RMinHash(PERMUTATIONS, 1)
        own.update(shingles(text))
        near = [other for other in index.query(own) if own.jaccard(hashed[other]) >= THRESHOLD]
        yield from ((other, number) for other in near)
        index.insert(number, own)
        hashed.append(own)


def main() -> int:
    library, file, out = sys.argv[1:]
    records = [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]
    doc_ids, texts = [record["id"] for record in records], [record["text"] for record in records]
    first = list(range(len(texts)))

    def first_of(number: int) -> int:
        while first[number] != number:
            first[number] = number = first[first[number]]
        return number

    with Path(out).open("w", encoding="utf-8") as written:
        for one, other in {"gaoya": pairs_by_gaoya, "rensa": pairs_by_rensa}[library](texts):
            written.write(f"{doc_ids[one]}\t{doc_ids[other]}\n")
            low, high = sorted((first_of(one), first_of(other)))
            first[high] = low
        for number, doc_id in enumerate(doc_ids):
            written.write(f"{doc_id}\t{doc_ids[first_of(number)]}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

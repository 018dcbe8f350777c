"""MinHash as text-dedup and datatrove run it, peers of `bench_quality`: `minhash_peers.py PEER DOCS OUT`.

Runs in a separate environment without hsimhash. Both peers use their defaults, except that datatrove splits words in
the language of most texts if it can, instead of always in English. OUT gets the pairs that share a bucket, as positions
of texts. Prints the CPU seconds that this took, without imports.
"""

import gzip
import json
import sys
import tempfile
import time
from collections import Counter, defaultdict
from functools import partial
from itertools import chain, combinations
from pathlib import Path

import numpy as np

# Korean is missing: it has spaces, and datatrove's tokenizer needs a model that its package no longer includes.
LANGUAGES = {"zh": "zho_Hani", "ja": "jpn_Jpan", "th": "tha_Thai", "ru": "rus", "de": "deu", "ar": "arb_Arab"}


def text_dedup(documents):
    """Return the buckets of `text_dedup.minhash`, filled as its main function does."""
    from text_dedup import minhash
    from text_dedup.utils import MinHashArgs, optimal_param, sha1_hash

    given, prime = MinHashArgs(), np.uint64((1 << 61) - 1)
    bands, rows = optimal_param(given.threshold, given.num_perm)
    embed = partial(
        minhash.embed_func,
        num_perm=given.num_perm,
        ngram_size=given.ngram,
        min_length=given.min_length,
        hashranges=[(at * rows, (at + 1) * rows) for at in range(bands)],
        permutations=tuple(minhash.RNG.randint(low, prime, size=given.num_perm, dtype=np.uint64) for low in (1, 0)),
        hash_func=sha1_hash,
        dtype=np.uint64,
        max_hash=np.uint32((1 << 32) - 1),
        modulo_prime=prime,
    )

    def buckets():
        filled = defaultdict(list)
        for place, document in enumerate(documents):
            if len(minhash.NON_ALPHA.split(document["text"].lower())) >= given.min_length:
                for key in enumerate(embed(document["text"], place)[minhash.SIGNATURE_COLUMN]):
                    filled[key].append(place)
        return filled.values()

    return buckets


def datatrove(documents):
    """Return the buckets of datatrove's first two MinHash steps."""
    from datatrove.data import Document
    from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.utils.logging import logger

    logger.remove()
    config, languages = MinhashConfig(), Counter(one["lang"].partition("-")[0] for one in documents)
    most = max(languages, key=lambda name: (languages[name], name))
    language, number = LANGUAGES.get(most, "eng"), config.num_buckets

    def buckets():
        with tempfile.TemporaryDirectory() as work:
            signatures, pairs = f"{work}/signatures", f"{work}/pairs"
            signing = MinhashDedupSignature(signatures, config, language=language)
            signing.run(Document(text=one["text"], id=str(at)) for at, one in enumerate(documents))
            for rank in range(number):
                MinhashDedupBuckets(signatures, pairs, config=config).run(None, rank, number)
            yield from chain.from_iterable(map(chains, Path(pairs).iterdir()))

    return buckets


def chains(path):
    """Yield the buckets of a file that links each text to the previous one in the same bucket."""
    bucket = []
    for _, before, _, place in np.fromfile(path, "<u4").reshape(-1, 4).tolist():
        if not bucket or bucket[-1] != before:
            yield bucket
            bucket = [before]
        bucket.append(place)
    yield bucket


def main(peer, docs, out):
    with gzip.open(docs, "rt", encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    buckets = {"text-dedup": text_dedup, "datatrove": datatrove}[peer](documents)
    began = time.process_time()
    pairs = {pair for bucket in buckets() for pair in combinations(sorted(bucket), 2)}
    np.save(out, np.array(sorted(pairs), np.int64).reshape(-1, 2))
    print(time.process_time() - began)


if __name__ == "__main__":
    main(*sys.argv[1:])

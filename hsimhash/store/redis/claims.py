"""Concurrent claims: exactly one of several near documents is new, without a lock.

A claim reads like a query. Then a single script adds the documents that have no near matches, unless anything that was
read has changed (`scripts.py`). In that case, the claim reads again, with fewer documents. Of several concurrent
scripts, at least one succeeds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from hashlib import sha1
from typing import Any

from hsimhash.errors import ClaimBusyError
from hsimhash.fingerprint.bits import Uint8s
from hsimhash.rowkey import FINGERPRINT_BYTES
from hsimhash.store.base import Claim, Claims
from hsimhash.store.redis.rows import Checked, RedisRows
from hsimhash.store.redis.view import RedisView
from hsimhash.store.retries import pauses


def decide_claims(rows: RedisRows, claims: Claims) -> None:
    """Decide all claims; raise `ClaimBusyError` if others keep changing what was read for too long."""
    most, began_s, waits = rows.limits.claims, time.monotonic(), pauses()
    while claims.is_open:
        view = ClaimView(rows)
        new, matches = claims.look(view, most)
        doc_ids = [claims.doc_ids[number] for number in new]
        if new and not rows.add_if_unchanged(doc_ids, claims.signatures[new], claims.first_seen[new], view.seen):
            if time.monotonic() - began_s > rows.limits.claim_s:
                raise ClaimBusyError(
                    f"{rows.session.url}: other processes kept adding documents near one of the {len(claims.doc_ids)} "
                    f"claimed documents for over {rows.limits.claim_s:g} s; repeat the call"
                )
            most = max(1, most // 2)
            time.sleep(next(waits))
            continue
        for number in (*new, *matches):
            claims.settle(number, Claim(number not in matches, matches.get(number)))
        began_s, waits = time.monotonic(), pauses()


class ClaimView(RedisView):
    """A view for claims, which keeps a digest of everything that was read."""

    def __init__(self, rows: RedisRows) -> None:
        super().__init__(rows, None)
        self.seen: dict[Checked, bytes] = {}  # SHA-1 of each read's result

    def _buckets(self, keys: Sequence[bytes], most: int | None) -> list[bytes | None]:
        buckets = super()._buckets(keys, most)
        for key, bucket in zip(keys, buckets, strict=True):
            # A truncated bucket decides nothing, because a claim that finds no match in it reads the whole bucket.
            if most is None or len(bucket or b"") < most * FINGERPRINT_BYTES:
                self._note((b"bucket", key, b"", b"", 0), bucket or b"")
        return buckets

    def _listed(self, asked: Sequence[tuple[int, bytes, bytes]], most: int) -> list[Any]:
        replies = super()._listed(asked, most)
        for (_, packed, after), rows in zip(asked, replies, strict=True):
            said = b"".join(b"%d:%b" % (len(part or b""), part or b"") for part in rows)
            self._note((b"listed", self._keys.listing(packed), packed, after, most), said)
        return replies

    def _registers(self, doc_ids: Sequence[bytes]) -> list[bytes | None]:
        values = super()._registers(doc_ids)
        for doc_id, value in zip(doc_ids, values, strict=True):
            self._note((b"register", self._keys.register(doc_id), doc_id, b"", 0), value or b"")
        return values

    def _swept(self, ranges: Sequence[tuple[bytes, bytes]]) -> Uint8s:
        # A sweep reads the whole index, so note the change counter.
        changes = self._session.call("HGET", self._keys.record, b"changes")
        self._note((b"field", self._keys.record, b"changes", b"", 0), changes or b"")
        return super()._swept(ranges)

    def _note(self, read: Checked, found: bytes) -> None:
        """Record the first result of a read; if a later result differs, the first one is out of date."""
        self.seen.setdefault(read, sha1(found, usedforsecurity=False).hexdigest().encode())

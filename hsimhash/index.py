"""`HSimIndex`: add fingerprints and documents, and find every near-duplicate, on any store.

A query reads one bucket per drawer, counts differing bits, and looks up the documents of the fingerprints that are near
enough.
"""

from __future__ import annotations

import os
import time
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypedDict, TypeVar, Unpack

import numpy as np

from hsimhash import metrics
from hsimhash.call_sharing import Callers, SharedCall
from hsimhash.claims import Turns
from hsimhash.cover import Cover, Probe, check_distance
from hsimhash.cover import cover as cheapest_cover
from hsimhash.errors import LayoutMismatchError, ProfileMismatchError, Remedy, StoreUnavailableError
from hsimhash.fingerprint import DEFAULT_PROFILE, Profile
from hsimhash.fingerprint.bits import Uint8s, distances, whole_number
from hsimhash.fingerprint.recipe import BY_RARITY
from hsimhash.fingerprint.signature import (
    MAX_SKETCH,
    AnySignatures,
    Signature,
    Signatures,
    as_signature,
    as_signatures,
    check_max_sketch,
)
from hsimhash.fingerprint.texts import LongEnough, as_texts
from hsimhash.layout import Layout
from hsimhash.matching import QUERY_BATCH, Rule, fetch, matches_of, matches_of_one, missing_drawers, ranges
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.query_log import SLOW_S, QueryStats
from hsimhash.rowkey import (
    KEY_FLAG,
    bucket_range,
    check_doc_ids,
    check_document,
    check_documents,
    fingerprints_of,
    key_prefixes,
    last_occurrences,
)
from hsimhash.store import (
    BulkLoad,
    CheckReport,
    Claim,
    CollectReport,
    Document,
    Match,
    Matches,
    Opening,
    StageOptions,
    Store,
    backend_of,
    capable,
    create_store,
    new_record,
    open_store,
    url_of,
)
from hsimhash.store.base import INSERT_DOCUMENTS, View, ViewInPart, with_view
from hsimhash.store.capabilities import AnswersInPart, BacksUp, Collects, Compacts, HasTable, LoadsFiles, LoadsInBulk
from hsimhash.store.reports import Explanation, ProbeRead
from hsimhash.store.sliced_load import InsertedLoad
from hsimhash.store.urls import DEADLINE, EXCLUSIVE, LOCK_TIMEOUT, folder_in, masked, with_options

T = TypeVar("T")

_WATCHED_DOCUMENTS = 10_000  # number of documents between progress reports
COVER_AGE_S = 600.0  # how long a cover is reused before the size of the index is estimated again


class QueryOptions(TypedDict, total=False):
    """Options of `query_many`, `query_text` and `query_texts`."""

    max_distance: int | None
    max_sketch: int | None
    limit: int | None
    timeout: float | None
    partial: bool


class TextsAdded(NamedTuple):
    """The result of `add_texts`."""

    changed: int  # number of documents that are new or have a different signature than before
    too_short: list[str]  # ids of texts too short for a fingerprint; nothing was written for them


class HSimIndex(AbstractContextManager["HSimIndex"]):
    """An index of documents by fingerprint, on any store. Use `create` or `open` to get one.

    Thread-safe and fork-safe, and a context manager that closes the index. After `close`, every call raises
    `StoreClosedError`. An index can be pickled and sent to another process, which opens it again with the same URL and
    options.
    """

    def __init__(self, store: Store, profile: Profile, slow_s: float | None = SLOW_S) -> None:
        self.store = store  # for capabilities that only some stores have
        self.backend = backend_of(store.url)
        self.profile = profile
        self.layout = store.record.layout
        self.url = store.url
        self.distance = store.record.reach
        self.slow_s = slow_s  # slower queries are logged; None or 0: no queries are logged
        # Also valid in other processes, and after this process changes its working directory.
        self.full_url = self.backend.full_url(store.url)
        self._opening = Opening()
        self._has_signatures = store.record.has_signatures
        self._keying = store.record.keying
        self._own = cheapest_cover(self.layout, self.layout.max_distance, 0, self.backend.prices)
        self._covers: dict[tuple[int, int], tuple[Cover, float]] = {}  # each with the time at which it expires
        self.queries, self.adds, self.claims = Callers(), Callers(), Callers()  # calls in progress

    @classmethod
    def create(
        cls,
        url: str | os.PathLike[str],
        *,
        layout: Layout | str | None = None,
        profile: Profile | str = DEFAULT_PROFILE,
        distance: int | None = None,
        lock_timeout_s: float | None = None,
        password: str | None = None,
        ttl_s: int | None = None,
    ) -> HSimIndex:
        """Create an empty index and open it.

        Args:
            url: URL of the index, or the folder of an embedded index: a `Path`, "./pages" or "/data/pages".
            layout: Layout, or text for `Layout.parse`. Default: `4`; on HBase, `10`.
            profile: Profile, or its name.
            distance: Default distance of queries, in bits. Default: the layout's k, but 6 for layout `4`, except on
                HBase.
            lock_timeout_s: Deprecated: set `lock_timeout=` in the URL.
            password: Password for Redis, if the URL does not have `password_file=`.
            ttl_s: Seconds after which documents expire on Redis, counted from when they were last added. Default:
                never.

        Raises:
            IndexExistsError: The index already exists.
            ValueError: The layout, profile, distance or URL is invalid.
        """
        layout = Layout.parse(layout) if isinstance(layout, str) else layout
        profile = Profile.named(profile) if isinstance(profile, str) else profile
        url = _with_keywords(url_of(url), lock_timeout_s)
        record = new_record(url, profile.to_json(), layout=layout, distance=distance)
        if distance is not None:
            check_distance(whole_number(distance, "distance"), record.layout)
        opening = Opening(password=password)
        index = cls(create_store(url, record, opening, ttl_s=ttl_s), profile)
        index._opening = opening
        return index

    @classmethod
    def open(
        cls,
        url: str | os.PathLike[str],
        *,
        layout: Layout | str | None = None,
        profile: Profile | str | None = None,
        lock_timeout_s: float | None = None,
        exclusive: bool = False,
        deadline_s: float | None = None,
        password: str | None = None,
        slow_s: float | None = SLOW_S,
    ) -> HSimIndex:
        """Open an index with the layout and profile that it was created with.

        Args:
            url: As for `create`.
            layout: Layout that the index must have; None accepts any layout.
            profile: Profile that the index must have; None accepts any profile.
            lock_timeout_s: Deprecated: set `lock_timeout=` in the URL.
            exclusive: Deprecated: set `exclusive=yes` in the URL of an index on HBase.
            deadline_s: Deprecated: set `deadline=` in the URL.
            password: Password for Redis, if the URL does not have `password_file=`.
            slow_s: Log queries and batches that take longer than this many seconds, and what they read, as warnings to
                the `hsimhash.slow` logger. None or 0 turns this off.

        Raises:
            IndexNotFoundError: The index does not exist.
            LayoutMismatchError, ProfileMismatchError: The index has a different layout or profile.
            FormatVersionError: A newer release wrote the index, in a format that this release does not support.
        """
        url = _with_keywords(url_of(url), lock_timeout_s, deadline_s, exclusive=exclusive)
        return cls._opened(url, Opening(password=password), layout=layout, profile=profile, slow_s=slow_s)

    @classmethod
    def _opened(
        cls,
        url: str,
        opening: Opening,
        *,
        layout: Layout | str | None = None,
        profile: Profile | str | None = None,
        slow_s: float | None = SLOW_S,
        takes_any_rarity: bool = False,
    ) -> HSimIndex:
        """Open an index as `open` does, with the options in `opening`.

        With `takes_any_rarity`, a profile without a user's rarity table also matches an index that has one.
        """
        wanted_layout = Layout.parse(layout) if isinstance(layout, str) else layout
        wanted_profile = Profile.named(profile) if isinstance(profile, str) else profile
        store = open_store(url, opening)
        try:
            if wanted_layout is not None and wanted_layout != store.record.layout:
                raise LayoutMismatchError(
                    f"{url} was created with layout {store.record.layout.name}, not {wanted_layout.name}; "
                    f"omit the layout, or create another index"
                )
            index = cls(store, _profile_of(store, wanted_profile, takes_any_rarity=takes_any_rarity), slow_s)
        except BaseException:
            store.close()
            raise
        index._opening = opening
        return index

    def __reduce__(self) -> tuple[object, ...]:
        """Return how to open the index in another process; raise `TypeError` if that is impossible or unsafe."""
        if not self.backend.is_lasting:
            raise TypeError(f"cannot pickle {self!r}: its documents exist only in this process; use lmdb:// instead")
        if self._opening.password is not None:
            raise TypeError(
                f"cannot pickle {self!r}: the pickle would contain its password; put password_file=PATH into the URL "
                f"instead of password=, or open the index in the other process"
            )
        # The profile includes the user's word lists.
        again = partial(type(self)._opened, profile=self.profile, slow_s=self.slow_s)
        return again, (self.full_url, self._opening)

    def add(self, signature: Signature | int, doc_id: str, *, first_seen: int | None = None) -> None:
        """Add one document, or change its signature. Durable on return. See `add_many`."""
        self.adds.ask(self.add_call(signature, doc_id, first_seen=first_seen))

    def add_call(
        self, signature: Signature | int, doc_id: str, *, first_seen: int | None = None
    ) -> SharedCall[tuple[Signature, bytes, int], None]:
        """Return the call that `add` makes. Raises `ValueError` or `TypeError` immediately for invalid arguments."""
        return SharedCall(
            self._insert, check_document(signature, doc_id, _now_ms() if first_seen is None else first_seen)
        )

    @metrics.measured("add")
    def _insert(self, documents: Sequence[tuple[Signature, bytes, int]], *_: object) -> Sequence[None]:
        """Write the documents of one or more `add` calls."""
        signatures, doc_ids, first_seen = zip(*documents, strict=True)
        self.store.insert(doc_ids, Signatures.collected(signatures), np.array(first_seen, np.int64))
        return [None] * len(documents)

    @metrics.measured("add_many")
    def add_many(
        self,
        signatures: AnySignatures,
        doc_ids: Sequence[str],
        *,
        first_seen: Sequence[int] | int | None = None,
    ) -> int:
        """Add documents, or change their signatures. They are durable on return.

        More than 100,000 documents are written in parts, and other processes can write in between. If such a call
        fails, some documents may have been written; repeat the call to write the remaining documents. On LMDB, up to
        100,000 documents are written in one transaction. Larger batches are written in parts of up to 1,000,000
        documents. Each part is a bulk load, which takes half the time.

        Args:
            signatures: n signatures, or fingerprints of shape (n,), unsigned 64-bit. If the profile of the index does
                not make sketches and keys, only the fingerprints are stored.
            doc_ids: n ids of 1 to 2,048 bytes of UTF-8 without control characters. If an id is repeated, its last
                document is stored.
            first_seen: ms since 1970, for all documents or for each. Default: now. A document that is already stored
                with the same signature keeps its stored time.

        Returns:
            Number of documents that are new or changed.

        Raises:
            ValueError, TypeError: An argument is invalid; nothing was written.
        """
        if first_seen is None:
            first_seen = _now_ms()
        values, encoded, times = check_documents(signatures, doc_ids, first_seen)
        if len(values) > INSERT_DOCUMENTS and len(last := last_occurrences(encoded)) < len(encoded):
            encoded, values, times = [encoded[place] for place in last], values[last], times[last]
        return self.store.insert_in_parts(encoded, values, times)

    def claim(
        self,
        signature: Signature | int,
        doc_id: str,
        *,
        max_distance: int | None = None,
        max_sketch: int | None = MAX_SKETCH,
        first_seen: int | None = None,
    ) -> Claim:
        """Add a document unless a match is already stored; return whether it is new, or its nearest match.

        Durable on return. See `claim_many`.
        """
        call = self.claim_call(
            signature, doc_id, max_distance=max_distance, max_sketch=max_sketch, first_seen=first_seen
        )
        return self.claims.ask(call)

    def claim_call(
        self,
        signature: Signature | int,
        doc_id: str,
        *,
        max_distance: int | None = None,
        max_sketch: int | None = MAX_SKETCH,
        first_seen: int | None = None,
    ) -> SharedCall[tuple[Signature, str, int], Claim]:
        """Return the call that `claim` makes. Raises `ValueError` or `TypeError` immediately for invalid arguments."""
        checked, _, first_seen = check_document(signature, doc_id, _now_ms() if first_seen is None else first_seen)
        return SharedCall(self._claims, (checked, doc_id, first_seen), self._rule(max_distance, max_sketch, None))

    def _claims(self, claimed: Sequence[tuple[Signature, str, int]], rule: Rule, _: object) -> list[Claim]:
        """Claim the documents of one or more `claim` calls together."""
        signatures, doc_ids, first_seen = zip(*claimed, strict=True)
        return self.claim_many(
            signatures, doc_ids, max_distance=rule.max_distance, max_sketch=rule.max_sketch, first_seen=first_seen
        )

    @metrics.measured("claim")
    def claim_many(
        self,
        signatures: AnySignatures,
        doc_ids: Sequence[str],
        *,
        max_distance: int | None = None,
        max_sketch: int | None = MAX_SKETCH,
        first_seen: Sequence[int] | int | None = None,
    ) -> list[Claim]:
        """Add each document unless a match is already stored, as if they were claimed one after another.

        If several processes claim near documents at the same time, exactly one of the documents is new. If a call
        fails, some of its documents may be stored; repeat the call. A stored document that is claimed again with a
        matching signature is reported as new again, and gets the later signature. If the signature does not match, the
        document is claimed like any other. If it then turns out to be a duplicate, the stored document stays unchanged.

        Args:
            signatures: As for `add_many`.
            doc_ids: As for `add_many`, except that a repeated id is claimed each time it occurs.
            max_distance: As for `query`.
            max_sketch: As for `query`.
            first_seen: As for `add_many`.

        Returns:
            One claim for each document, in order: whether it is new, or its nearest match. See `limit` in `query`.

        Raises:
            ValueError, TypeError: An argument is invalid; nothing was written.
            StoreBusyError: Another process kept writing (on HBase and Redis: a near document) for too long; try again.
        """
        if first_seen is None:
            first_seen = _now_ms()
        values, encoded, times = check_documents(signatures, doc_ids, first_seen)
        values = self.store.record.stored(values)
        rule = self._rule(max_distance, max_sketch, 1)

        def ask(view: View, numbers: Sequence[int]) -> list[list[Match]]:
            return self._ask_for_claims(view, values[numbers], [doc_ids[number] for number in numbers], rule)

        turns = Turns(encoded, values, times, ask=ask, rule=rule)
        self.store.claim(turns)
        return turns.decided

    def _ask_for_claims(self, view: View, asked: Signatures, doc_ids: Sequence[str], rule: Rule) -> list[list[Match]]:
        """Return the matches of claimed documents, excluding the documents themselves."""
        cover, stats = self.cover(rule.max_distance, queries=max(len(asked), 1), view=view), QueryStats("claim")
        try:
            if len(asked) == 1:
                found = [matches_of_one(view, cover, asked.at(0), doc_ids[0], rule, stats)]
            else:
                found = matches_of(view, cover, asked, doc_ids, rule, stats)
            stats.matches = sum(map(len, found))
            return found
        finally:
            stats.end(self.slow_s, self.url, asked.fingerprints, rule.max_distance)

    def query(
        self,
        signature: Signature | int,
        *,
        max_distance: int | None = None,
        max_sketch: int | None = MAX_SKETCH,
        limit: int | None = None,
        exclude: str | None = None,
        timeout: float | None = None,
        partial: bool = False,
    ) -> Matches:
        """Return every document within `max_distance` bits of a fingerprint, nearest first.

        A signature also finds documents that share a key with it, at any distance. Documents are left out if their
        sketches show that the texts differ.

        Args:
            signature: Signature, or only a fingerprint, unsigned 64-bit.
            max_distance: 0 to 16 bits, or up to the layout's k if that is greater. Default: the index's own distance.
            max_sketch: Number of bits, out of 64, in which two sketches may differ. Each bit of distance beyond 16
                lowers this limit by one. None: sketches are not compared.
            limit: Maximum number of nearest matches to return. In a bucket with more than 4,000 rows, the search may
                use only the first 4,000.
            exclude: Id of a document to leave out.
            timeout: Seconds after which the call ends, even if it is still waiting.
            partial: If parts of the index do not respond in time, return the matches from the other parts instead of
                raising an error. The result's `missing` lists the drawers that did not respond; on HBase, these are in
                the regions of a lost server. The call ends after `timeout`, or after the `deadline=` in the URL.

        Raises:
            StoreTimeoutError: `timeout` passed.
        """
        rule = self._rule(max_distance, max_sketch, limit)
        query = self._asked(as_signature(signature))
        if partial:
            return self._query_in_part(query, exclude, rule, timeout)
        if self.backend.shares_queries:
            return self.queries.ask(SharedCall(self._answers, (query, exclude), rule, timeout))
        return self._answer(query, exclude, rule, timeout)

    def query_call(
        self,
        signature: Signature | int,
        *,
        max_distance: int | None = None,
        max_sketch: int | None = MAX_SKETCH,
        limit: int | None = None,
        exclude: str | None = None,
    ) -> SharedCall[tuple[Signature, str | None], Matches]:
        """Return the call that `query` makes. Raises `ValueError` or `TypeError` immediately for invalid arguments."""
        rule = self._rule(max_distance, max_sketch, limit)
        return SharedCall(self._answers, (self._asked(as_signature(signature)), exclude), rule)

    def _rule(self, max_distance: int | None, max_sketch: int | None, limit: int | None) -> Rule:
        """Return the rule of a query; raise `ValueError` or `TypeError` for invalid options."""
        if limit is not None:
            _check_limit(limit)
        check_max_sketch(max_sketch)
        if max_distance is None:
            max_distance = self.distance
        elif type(max_distance) is not int or not 0 <= max_distance <= self._own.distance:
            max_distance = check_distance(max_distance, self.layout)
        return Rule(max_distance, max_sketch, limit, self._keying)

    @metrics.measured("query")
    def _answer(self, query: Signature, exclude: str | None, rule: Rule, timeout: float | None) -> Matches:
        stats = QueryStats("query")

        def answered(view: View) -> list[Match]:
            return matches_of_one(view, self.cover(rule.max_distance, view=view), query, exclude, rule, stats)

        try:
            found = with_view(self.store, answered, timeout_s=timeout)
            stats.matches = len(found)
            metrics.current.matches.inc(stats.matches)
            return Matches(found)
        finally:
            stats.end(self.slow_s, self.url, (query.fingerprint,), rule.max_distance)

    @metrics.measured("query")
    def _query_in_part(self, query: Signature, exclude: str | None, rule: Rule, timeout: float | None) -> Matches:
        def found_in(view: View, cover: Cover, stats: QueryStats) -> list[list[Match]]:
            return [matches_of_one(view, cover, query, exclude, rule, stats)]

        asked = self.store.record.stored(Signatures.collected([query]))
        return self._found("query", found_in, asked, rule, timeout, partial=True)[0]

    def _found(
        self,
        call: str,
        found_in: Callable[[View, Cover, QueryStats], list[list[Match]]],
        asked: Signatures,
        rule: Rule,
        timeout: float | None,
        *,
        partial: bool,
    ) -> list[Matches]:
        """Return what `found_in` finds for queries; if `partial`, also the drawers that did not respond."""
        stats = QueryStats(call)

        def answered(view: View) -> list[Matches]:
            cover = self.cover(rule.max_distance, queries=max(len(asked), 1), view=view)
            found = found_in(view, cover, stats)
            if isinstance(view, ViewInPart):
                return list(map(Matches.in_part, found, missing_drawers(view, cover, asked)))
            return list(map(Matches, found))

        try:
            if partial and isinstance(self.store, AnswersInPart):
                with self.store.view_in_part(timeout_s=timeout) as view:
                    found = answered(view)
            else:
                found = with_view(self.store, answered, timeout_s=timeout)
            stats.matches = sum(map(len, found))
            metrics.current.matches.inc(stats.matches)
            return found
        except StoreUnavailableError:
            if not partial:
                raise
            return [Matches.in_part((), self._drawers_of(query)) for query in asked]
        finally:
            stats.end(self.slow_s, self.url, asked.fingerprints, rule.max_distance)

    def _drawers_of(self, query: Signature) -> tuple[int, ...]:
        """Return the numbers of all drawers in which a query can find something."""
        numbers = tuple(drawer.number for drawer in self.layout.drawers)
        return (*numbers, KEY_FLAG) if query.key else numbers

    def _answers(
        self, queries: Sequence[tuple[Signature, str | None]], rule: Rule, timeout: float | None
    ) -> list[Matches]:
        """Answer queries in one call; each has the id of a document to leave out, or None."""
        if len(queries) == 1:
            return [self._answer(*queries[0], rule, timeout)]
        signatures, exclude = zip(*queries, strict=True)
        distance, max_sketch, limit, _ = rule
        return self.query_many(
            signatures, max_distance=distance, max_sketch=max_sketch, limit=limit, exclude=exclude, timeout=timeout
        )

    @metrics.measured("query_many")
    def query_many(
        self,
        signatures: AnySignatures,
        *,
        max_distance: int | None = None,
        max_sketch: int | None = MAX_SKETCH,
        limit: int | None = None,
        exclude: Sequence[str | None] | None = None,
        timeout: float | None = None,
        partial: bool = False,
    ) -> list[Matches]:
        """Run `query` for each signature, in order. A batch takes far less time per query.

        Args:
            signatures: n signatures, or fingerprints of shape (n,), unsigned 64-bit.
            max_distance: As for `query`.
            max_sketch: As for `query`.
            limit: As for `query`.
            exclude: For each query, the id of a document to leave out, or None.
            timeout: As for `query`, but for all queries together.
            partial: As for `query`. Each result has its own missing drawers.

        Raises:
            StoreTimeoutError: `timeout` passed.
        """
        asked = self.store.record.stored(as_signatures(signatures))
        if isinstance(exclude, str):
            raise TypeError(
                f"exclude must be a sequence with an id or None for each query, got a single str: {exclude!r:.80}"
            )
        if exclude is not None and len(exclude) != len(asked):
            raise ValueError(
                f"exclude must have an id or None for each query, got {len(exclude)} for {len(asked)} queries"
            )

        rule = self._rule(max_distance, max_sketch, limit)

        def found_in(view: View, cover: Cover, stats: QueryStats) -> list[list[Match]]:
            return matches_of(view, cover, asked, exclude, rule, stats)

        return self._found("query_many", found_in, asked, rule, timeout, partial=partial)

    def add_text(self, text: str, doc_id: str, *, first_seen: int | None = None) -> None:
        """Add one document by its text. See `add`.

        Raises:
            TextTooShortError: The text is too short for a fingerprint; nothing was written.
        """
        self.add(self.profile.signature(text), doc_id, first_seen=first_seen)

    def query_text(self, text: str, *, exclude: str | None = None, **options: Unpack[QueryOptions]) -> Matches:
        """Return every document near a text, nearest first. Takes the options of `query`.

        Raises:
            TextTooShortError: The text is too short for a fingerprint.
        """
        return self.query(self.profile.signature(text), exclude=exclude, **options)

    def claim_text(
        self,
        text: str,
        doc_id: str,
        *,
        max_distance: int | None = None,
        max_sketch: int | None = MAX_SKETCH,
        first_seen: int | None = None,
    ) -> Claim:
        """Add a document by its text unless a match is already stored. See `claim`.

        Raises:
            TextTooShortError: The text is too short for a fingerprint; nothing was written.
        """
        signature = self.profile.signature(text)
        return self.claim(signature, doc_id, max_distance=max_distance, max_sketch=max_sketch, first_seen=first_seen)

    def add_texts(
        self, texts: Iterable[str], doc_ids: Iterable[str], *, first_seen: Iterable[int] | int | None = None
    ) -> TextsAdded:
        """Add documents by their texts. See `add_many`.

        Texts that are too short for a fingerprint are not added; the result lists their ids. If such an id is already
        in the index, that document stays unchanged.

        Args:
            texts: n texts: a list, a column of a data frame, or any other iterable with a fixed order.
            doc_ids: n ids, one for each text.
            first_seen: As for `add_many`.

        Raises:
            ValueError, TypeError: An argument is invalid; nothing was written.
        """
        known, ids = LongEnough(self.profile.signatures(texts)), as_texts(doc_ids, "doc_ids")
        times = known.of(first_seen, "first_seen")
        changed = self.add_many(known.signatures, known.of(ids, "doc_ids"), first_seen=times)
        return TextsAdded(changed, known.others(ids))

    def query_texts(
        self, texts: Iterable[str], *, exclude: Iterable[str | None] | None = None, **options: Unpack[QueryOptions]
    ) -> list[Matches | None]:
        """Run `query_text` for each text, in order. The result is None for texts that are too short.

        Args:
            texts: As for `add_texts`.
            exclude: For each text, the id of a document to leave out, or None.
            options: Options of `query_many`.
        """
        known = LongEnough(self.profile.signatures(texts))
        return known.spread(self.query_many(known.signatures, exclude=known.of(exclude, "exclude"), **options))

    def claim_texts(
        self,
        texts: Iterable[str],
        doc_ids: Iterable[str],
        *,
        max_distance: int | None = None,
        max_sketch: int | None = MAX_SKETCH,
        first_seen: Iterable[int] | int | None = None,
    ) -> list[Claim | None]:
        """Run `claim_text` for each text, in order. The result is None for texts that are too short.

        Texts that are too short for a fingerprint are neither stored nor compared.

        Args:
            texts: As for `add_texts`.
            doc_ids: As for `add_texts`.
            max_distance: As for `claim_many`.
            max_sketch: As for `claim_many`.
            first_seen: As for `add_many`.

        Raises:
            ValueError, TypeError: An argument is invalid; nothing was written.
        """
        known = LongEnough(self.profile.signatures(texts))
        ids, times = known.of(doc_ids, "doc_ids"), known.of(first_seen, "first_seen")
        found = self.claim_many(
            known.signatures, ids, max_distance=max_distance, max_sketch=max_sketch, first_seen=times
        )
        return known.spread(found)

    def explain(
        self, signature: Signature | int, *, max_distance: int | None = None, max_sketch: int | None = MAX_SKETCH
    ) -> Explanation:
        """Return what `query` reads and how long that takes. Reads the probes one by one to measure each."""
        cover, query = self.cover(max_distance), self._asked(as_signature(signature))
        matches, milliseconds = _timed(lambda: self.query(query, max_distance=cover.distance, max_sketch=max_sketch))
        regions = self.store.regions() if isinstance(self.store, HasTable) else []
        probes = []
        starts = [region.start for region in regions]

        def take(probe: Probe | None, start: bytes, stop: bytes, ask: Callable[[], Uint8s]) -> None:
            rows, took = _timed(ask)
            near = int(np.count_nonzero(distances(query.fingerprint, fingerprints_of(rows)) <= cover.distance))
            region = regions[bisect_right(starts, start) - 1] if regions else None
            probes.append(ProbeRead(probe, start, stop, region, len(rows), near, took))

        for probe in cover.probes:
            probe_set = cover.probe_set([probe])
            numbers = probe_set.numbers_of(query.fingerprint)
            ((start, stop),) = ranges(probe_set, numbers[:1])
            take(probe, start, stop, partial(fetch, self.store, probe_set, np.sort(numbers)))
        for prefix in key_prefixes(self.store.record.keying, query.key):
            take(None, *bucket_range(prefix), partial(self.store.scan, [prefix]))
        return Explanation(cover, len(matches), milliseconds, tuple(probes))

    @metrics.measured("remove")
    def remove(self, doc_ids: str | Sequence[str], *, before: int | None = None) -> int:
        """Remove documents, and return how many existed. Durable on return; unknown ids are ignored.

        With `before` (ms since 1970), remove only documents first seen earlier. Documents that change during the call
        are kept.
        """
        return self.store.remove(check_doc_ids([doc_ids] if isinstance(doc_ids, str) else doc_ids), before=before)

    def get(self, doc_id: str) -> Document | None:
        """Return a stored document, or None if the id is unknown."""
        return self.get_many([doc_id])[0]

    @metrics.measured("get")
    def get_many(self, doc_ids: Sequence[str]) -> list[Document | None]:
        """Return the document of each id, in order, or None if the id is unknown."""
        return self.store.lookup(check_doc_ids(doc_ids))

    def count(self, *, before: int | None = None, workers: int = 1) -> int:
        """Return the number of documents; with `before` (ms since 1970), only those first seen earlier.

        On HBase, `workers` processes read all registers.
        """
        return self.store.count(before=before, workers=workers)

    def is_empty(self) -> bool:
        """Return whether the index is empty. On a server this is far cheaper than counting its documents."""
        return not any(self.store.walk())

    def documents(self, *, before: int | None = None) -> Iterator[Document]:
        """Yield documents in order of fingerprint and id. With `before` (ms since 1970), only those first seen earlier.

        Documents that are added, moved or removed during the iteration may or may not be included.
        """
        for documents in self.store.walk():
            yield from (document for document in documents if before is None or document.first_seen < before)

    @metrics.measured("check")
    def check(
        self,
        *,
        repair: bool = False,
        observer: Observer = UNWATCHED,
        workers: int = 1,
        folder: str | Path | None = None,
    ) -> CheckReport:
        """Check that the index's rows are consistent with each other.

        Args:
            repair: Repair inconsistencies.
            observer: Receives progress.
            workers: On HBase, the number of processes that read.
            folder: On HBase, a folder for the findings. A call with the same folder resumes an interrupted check.
        """
        place = None if folder is None else Path(folder)
        return self.store.check(repair=repair, observer=observer, workers=workers, folder=place)

    def collect(self, *, observer: Observer = UNWATCHED) -> CollectReport:
        """Delete leftovers of moved and removed documents on Redis, and on HBase those more than an hour old.

        Reads only the log of leftovers, never the whole table. Other processes can read and write at the same time.
        Raises `HsimhashError` on other stores.

        Args:
            observer: Receives progress.
        """
        return capable(self.store, Collects).collect(observer=observer)

    def describe(self, *, is_counted: bool = True, workers: int = 1) -> dict[str, object]:
        """Return facts about the index as JSON values: url, layout, profile, format, documents, rows, bytes.

        Args:
            is_counted: Include the number of documents; on HBase, this reads all registers.
            workers: Number of processes that read the registers.
        """
        record = self.store.record
        return {
            "url": self.url,
            "layout": record.layout.to_json(),
            "max_distance": self.layout.max_distance,
            "distance": self.distance,
            "profile": record.profile,
            "format": record.form,
            **({"documents": self.count(workers=workers)} if is_counted else {}),
            **self.store.describe(),
        }

    def compact(self) -> tuple[int, int]:
        """Rewrite the index without free space, and return its size in bytes before and after.

        Raises:
            StoreBusyError: Other processes have the index open; the message names them.
        """
        return capable(self.store, Compacts).compact()

    def backup(self, target: str | Path) -> None:
        """Copy the current state of the index to the new folder `target`, while other processes read and write."""
        capable(self.store, BacksUp).backup(Path(target))

    def write_tables(
        self,
        target: str | os.PathLike[str],
        *,
        compress: bool = False,
        overwrite: bool = False,
        observer: Observer = UNWATCHED,
    ) -> int:
        """Write all documents as a read-only index, and return their number. Open it by its URL, `tables://…`.

        The new index has the layout, profile and distance of this index. Documents that other processes write during
        the call may be missing.

        Args:
            target: URL or path of a new or empty folder.
            compress: Write 5 to 6 bytes per drawer row instead of 8; queries then take longer.
            overwrite: Replace tables that are already in the folder. Processes that have the old tables open keep using
                them.
            observer: Receives progress.

        Raises:
            IndexExistsError: The folder contains tables or other files.
            ValueError: `target` is the URL of another kind of store.
        """
        from hsimhash.store.tables.write import (
            TablesOptions,
            write_tables,
        )  # imported here because it takes 10 ms and only this method needs it

        named = os.fsdecode(target)
        if "://" in named and not named.startswith("tables://"):
            raise ValueError(
                f"{masked(named)} is not a folder of tables: expected tables://FOLDER; "
                + Remedy("hsimhash.load.relayout", "'hsimhash relayout --to'")
                + " copies an index to another store"
            )
        folder = folder_in(named, named.removeprefix("tables://"))

        def watched() -> Iterator[Document]:
            for number, document in enumerate(self.documents(), start=1):
                yield document
                if number % _WATCHED_DOCUMENTS == 0:
                    observer.report("read", document.fingerprint >> 32, 1 << 32, number)

        options = TablesOptions(compress, overwrite)
        return write_tables(folder, self.store.record, watched(), options, observer).documents

    def bulk(
        self, folder: str | Path, step_documents: int | None = None, *, stage: StageOptions | None = None
    ) -> BulkLoad:
        """Return a bulk load with sorted runs in `folder`. With `stage`, on HBase, it loads files. See `BulkLoad`."""
        if stage is not None:
            return capable(self.store, LoadsFiles).staged(Path(folder), stage)
        if isinstance(self.store, LoadsInBulk):
            return self.store.bulk(Path(folder), step_documents)
        return InsertedLoad(self.store, Path(folder), step_documents)

    def close(self) -> None:
        """Close the store; closing it again is harmless."""
        self.store.close()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<HSimIndex {self.url} layout={self.layout.name} profile={self.profile.name}>"

    def _asked(self, signature: Signature) -> Signature:
        """Return the parts of a signature that the index stores: in format 1, only the fingerprint."""
        is_whole = self._has_signatures or not (signature.sketch or signature.key)
        return signature if is_whole else Signature(signature.fingerprint)

    def cover(self, max_distance: int | None = None, *, queries: int = 1, view: View | None = None) -> Cover:
        """Return the cover of each query in a batch of `queries`; `view` is used to estimate the size of the index."""
        distance = self.distance if max_distance is None else max_distance
        if type(distance) is int and distance == self._own.distance:
            return self._own
        distance = check_distance(distance, self.layout)
        size = min(queries, QUERY_BATCH).bit_length()
        known, until_s = self._covers.get((distance, size), (None, 0.0))
        if known is None or time.monotonic() > until_s:
            documents = 1 << (view or self.store).estimate().bit_length()
            known = cheapest_cover(self.layout, distance, documents, self.backend.prices, 1 << size - 1)
            self._covers[distance, size] = known, time.monotonic() + (0 if known.is_swept else COVER_AGE_S)
        return known


opened_index = HSimIndex._opened  # for other modules: jobs use a different deadline


def _with_keywords(
    url: str, lock_timeout_s: float | None, deadline_s: float | None = None, *, exclusive: bool = False
) -> str:
    """Return the URL with the options that replace deprecated keywords, if its kind of store has them."""
    given = {LOCK_TIMEOUT: lock_timeout_s, DEADLINE: deadline_s}
    named = {name: f"{seconds:g}s" for name, seconds in given.items() if seconds is not None}
    named |= {EXCLUSIVE: "yes"} if exclusive else {}
    if not named:
        return url
    options = "&".join(f"{name}={text}" for name, text in named.items())
    message = f"lock_timeout_s, deadline_s and exclusive are deprecated; set them in the URL: {options}"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
    return with_options(url, {name: text for name, text in named.items() if name in backend_of(url).options})


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _timed(call: Callable[[], T]) -> tuple[T, float]:
    """Run `call`; return its result and the number of milliseconds it took."""
    began = time.perf_counter()
    found = call()
    return found, 1_000 * (time.perf_counter() - began)


def _check_limit(limit: int | None) -> None:
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool)):
        raise TypeError(f"limit must be a whole number, got {type(limit).__name__}: {limit!r:.80}")
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}")


def _profile_of(store: Store, wanted: Profile | None, *, takes_any_rarity: bool) -> Profile:
    try:
        stored = Profile.from_json(store.record.profile)
    except ValueError as error:
        raise ProfileMismatchError(
            f"{store.url} was created with profile {store.record.profile.get('name')!r}, which this release does not "
            f"support ({error}); use the release that created it, or ingest the documents again"
        ) from error
    if wanted is not None and takes_any_rarity and stored.has_own_rarity and not wanted.has_own_rarity:
        wanted = replace(wanted, name=stored.name, rarity=stored.rarity) if wanted.weights == BY_RARITY else wanted
    if wanted is not None and wanted != stored:
        parts = [key for key, value in wanted.to_json().items() if value != store.record.profile.get(key)]
        differing = f" (they differ in {', '.join(parts)})" if stored.name == wanted.name else ""
        raise ProfileMismatchError(
            f"{store.url} was created with profile {stored.name}, not {wanted.name}{differing}; omit the profile, or "
            f"create another index"
        )
    return stored

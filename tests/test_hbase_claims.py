"""Concurrent claims by several processes on a model of HBase, and tests that the model detects a broken protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from hsimhash.call_sharing import Asked
from hsimhash.errors import CorruptionError, StoreBusyError
from hsimhash.fingerprint import Profile, Signature
from hsimhash.index import HSimIndex
from hsimhash.layout import Layout
from hsimhash.store.base import Claim, Claims, Record
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, Change, Put, always
from hsimhash.store.hbase.rows.cells import Register, register_columns, register_key
from hsimhash.store.hbase.rows.claims import TableClaims
from hsimhash.store.hbase.rows.protocol import Read, Times
from hsimhash.store.hbase.store import HBaseStore
from tests.stress.claims_protocol import first_failed_claim
from tests.stress.protocol import Kind
from tests.support.effort import thorough, tries
from tests.support.hbase_model import MINUTE_MS, Cluster, ModelGateway

IsTimely = Callable[[], bool]
SCHEDULES = tries(1_000, 200)  # `python -m tests.stress.claims_protocol` runs 100,000
MOST_SCHEDULES = 20_000  # among which a broken protocol must fail at least once
RECORD = Record(Layout.named("10"), {"name": "test-1"})
VALUE = Register(Signature(0x0123456789ABCDEF, 5, 6), 1_000, 7)


class IgnoresClaims(TableClaims):
    """Considers only documents that are already in the index, not other claims."""

    def _met(self, number: int, others: Mapping[bytes, Read]) -> dict[bytes, Read]:
        return {}


class AsksFirst(TableClaims):
    """Confirms a claim by what it found before the claim was tentative."""

    def _contest(self, own: Mapping[int, Read]) -> int:
        mine = self._claimed(own, self._times.rows_timely())
        following = {self._claims.doc_ids[number]: (read, read.register.confirmed()) for number, read in mine.items()}
        done = self._set(following, lambda: True)
        return self._settle([number for number in mine if self._claims.doc_ids[number] in done])


class Overwrites(TableClaims):
    """Puts registers without comparing them first."""

    def _set(self, following: Mapping[bytes, tuple[Read, Register]], is_timely: IsTimely) -> set[bytes]:
        changes = [self._writes.change_of(doc_id, *change) for doc_id, change in following.items()]
        self._writes.gateway.put([Put(one.row, one.family, one.qualifier, one.value) for one in changes])
        return set(following)


class BelievesUnknownLosses(TableClaims):
    """Assumes that the other claims were set to lost, whatever the outcome."""

    def _set(self, following: Mapping[bytes, tuple[Read, Register]], is_timely: IsTimely) -> set[bytes]:
        done = super()._set(following, is_timely)
        return done | {doc_id for doc_id, (_, register) in following.items() if register.claimed is register.signature}


def kind(broken: type[TableClaims]) -> Kind:
    class Broken(HBaseStore):
        def claim(self, claims: Claims) -> None:
            broken(self._writes(), claims).run()

    return Kind(store=Broken)


@thorough
@pytest.mark.parametrize("profile", ["auto-2", "auto-3"])
def test_claims_keep_what_they_promise(profile: str) -> None:
    assert first_failed_claim(range(SCHEDULES), Kind(profile=profile)) is None


@pytest.mark.parametrize(  # with the first schedule to try, so that the fault is found quickly
    ("broken", "first"), [(IgnoresClaims, 1_490), (AsksFirst, 120), (Overwrites, 60), (BelievesUnknownLosses, 4_550)]
)
def test_the_model_sees_a_broken_claim(broken: type[TableClaims], first: int) -> None:
    assert first_failed_claim(range(first, first + MOST_SCHEDULES), kind(broken)) is not None


# The register of a claim.


@pytest.mark.parametrize("has_signatures", [False, True])
@pytest.mark.parametrize("before", [Register(changes=6), VALUE])
def test_a_register_with_a_claim_is_read_as_it_was_written(before: Register, has_signatures: bool) -> None:
    claim, old = Signature(9, 8, 7), before.signature
    if not has_signatures:
        claim, old = Signature(9), old and Signature(old.fingerprint)
    register = before._replace(signature=old).claiming(claim, 2_000)
    value = register.to_bytes(has_signatures=has_signatures)
    assert (
        len(value)
        == {(False, False): 21, (False, True): 37, (True, False): 37, (True, True): 69}[has_signatures, old is not None]
    )
    assert Register.from_bytes(value) == register
    assert register.document(b"a") == before._replace(signature=old).document(b"a")
    assert register.confirmed().signature == claim
    is_filed, is_removed, values, _ = register_columns([value])
    assert (is_filed.tolist(), is_removed.tolist()) == ([old is not None], [old is None])
    assert values.tolist() == ([old.fingerprint] if old else [])
    with pytest.raises(CorruptionError):
        Register.from_bytes(value[:-1] + b"\x03")


# A claim that a killed process left behind.


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    HBaseStore.create("hbase://model", ModelGateway(made), RECORD)
    return made


def opened(cluster: Cluster, gateway: ModelGateway | None = None, **given: float) -> HSimIndex:
    times = replace(
        Times(),
        clock=lambda: cluster.now / 1_000,
        wall_clock=lambda: cluster.now / 1_000,
        sleep=lambda seconds: cluster.advance(round(1_000 * seconds)),
        **given,
    )
    store = HBaseStore("hbase://model", gateway or ModelGateway(cluster), RECORD, ask_times=lambda: times)
    return HSimIndex(store, Profile.named("auto-1"))


class Killed(BaseException):
    """A process was killed."""


class Dying(TableClaims):
    """Is killed when it looks for near documents and claims."""

    def _met(self, number: int, others: Mapping[bytes, Read]) -> dict[bytes, Read]:
        raise Killed


class DyingStore(HBaseStore):
    def claim(self, claims: Claims) -> None:
        Dying(self._writes(), claims).run()


@pytest.fixture
def dead(cluster: Cluster) -> None:
    """A claim by a killed process: document `dead`, with fingerprint 5, first seen at 1."""
    store = DyingStore("hbase://model", ModelGateway(cluster), RECORD)
    with pytest.raises(Killed):
        HSimIndex(store, Profile.named("auto-1")).claim(5, "dead", first_seen=1)


@pytest.mark.usefixtures("dead")
def test_a_tentative_document_is_nowhere_to_be_seen(cluster: Cluster) -> None:
    index = opened(cluster)
    assert index.query(5) == []
    assert index.get("dead") is None
    assert (index.count(), list(index.documents()), index.check().problems) == (0, [], 0)


@pytest.mark.usefixtures("dead")
def test_a_later_claim_waits_for_an_earlier_one_until_that_is_a_dead_one(cluster: Cluster) -> None:
    index = opened(cluster)
    with pytest.raises(StoreBusyError, match="after 20 minutes"):
        index.claim(4, "later", first_seen=2)
    (cell,) = index.store.gateway.get([register_key(b"later")], DOCUMENT_FAMILY)
    assert cell is not None
    assert Register.from_bytes(cell.value).claimed is None
    cluster.advance(20 * MINUTE_MS)
    assert index.claim(4, "later", first_seen=2) == Claim(is_new=True)
    assert [match.doc_id for match in index.query(5)] == ["later"]


class Unanswered(ModelGateway):
    """A gateway that loses the first two calls that withdraw a claim."""

    lost = 0

    def change(self, changes: Sequence[Change], *, is_timely: IsTimely = always) -> list[bool | None]:
        withdraws = any(
            Register.from_bytes(change.expected or b"").claimed and not Register.from_bytes(change.value).claimed
            for change in changes
        )
        if withdraws and self.lost < 2:
            self.lost += 1
            return [None] * len(changes)
        return super().change(changes, is_timely=is_timely)


@pytest.mark.usefixtures("dead")
def test_a_claim_that_gives_up_is_withdrawn_though_replies_are_lost(cluster: Cluster) -> None:
    gateway = Unanswered(cluster)
    index = opened(cluster, gateway)
    with pytest.raises(StoreBusyError, match="after 20 minutes"):
        index.claim(4, "later", first_seen=2)
    (cell,) = gateway.get([register_key(b"later")], DOCUMENT_FAMILY)
    assert cell is not None
    assert (gateway.lost, Register.from_bytes(cell.value).claimed) == (2, None)


@pytest.mark.usefixtures("dead")
def test_of_claims_that_share_a_call_only_the_one_that_waits_for_another_process_fails(cluster: Cluster) -> None:
    index = opened(cluster)
    waiting = Asked(index.claim_call(4, "later", first_seen=2), lambda: None)
    other = Asked(index.claim_call(2**64 - 1, "far"), lambda: None)
    for asked in (waiting, other):
        index.claims.gather(asked)
    index.claims.serve()
    assert isinstance(waiting.error, StoreBusyError)
    assert (other.answer, other.error) == (Claim(is_new=True), None)


@pytest.mark.usefixtures("dead")
def test_an_earlier_claim_does_not_wait_for_a_later_one(cluster: Cluster) -> None:
    assert opened(cluster).claim(4, "earlier", first_seen=0).is_new


@pytest.mark.usefixtures("dead")
def test_who_claims_again_continues_its_claim(cluster: Cluster) -> None:
    assert opened(cluster).claim(5, "dead", first_seen=3).is_new
    found = opened(cluster).claim_many([5, 4], ["dead", "other"])
    assert [claim.is_new for claim in found] == [True, False]


@pytest.mark.usefixtures("dead")
def test_another_that_adds_the_document_ends_its_claim(cluster: Cluster) -> None:
    index = opened(cluster)
    index.add(2**64 - 1, "dead")
    assert index.claim(4, "later").is_new
    assert index.claim(2**64 - 2, "near").match is not None

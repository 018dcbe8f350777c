"""The `hsimhash doctor` checks on PostgreSQL: the server, the record, privileges, durability and vacuuming."""

from __future__ import annotations

from collections.abc import Iterator

from hsimhash.errors import HsimhashError
from hsimhash.store.checkup import Check, check_read, check_record, check_relayout, median_ms
from hsimhash.store.postgresql.audit import missing_indexes
from hsimhash.store.postgresql.codec import Tables
from hsimhash.store.postgresql.privileges import privileges
from hsimhash.store.postgresql.session import Link
from hsimhash.store.postgresql.store import DatabaseStore

_DEADLINE_S = 5.0
_DEAD_SHARE = 0.3  # doctor warns if the dead rows exceed this share of the live rows
_SETTINGS = "SELECT name, setting FROM pg_settings WHERE name = ANY($1::text[])"
_ASKED = ["autovacuum", "fsync", "full_page_writes", "max_connections", "ssl", "synchronous_commit"]


def checks(url: str, *, is_quick: bool = False) -> Iterator[Check]:
    """Check an index on PostgreSQL; with `is_quick`, only whether it can be read."""
    try:
        store = DatabaseStore.open(url, deadline_s=_DEADLINE_S)
    except (HsimhashError, ValueError) as error:
        found = error if isinstance(error, HsimhashError) else HsimhashError(str(error))
        yield Check.failed("server", found)
        return
    with store:
        if is_quick:
            yield check_read(store)
            return
        try:
            yield store.session.call(_check_server)
            yield check_record(store.record)
            yield from check_relayout(store)
            yield store.session.call(lambda link: _check_privileges(link, store.tables))
            yield check_read(store)
            yield from store.session.call(_check_settings)
            yield _check_indexes(store)
            yield _check_size(store)
        except HsimhashError as error:
            yield Check.failed("server", error)


def _check_server(link: Link) -> Check:
    ((used, role, is_standby),) = link.rows(
        "SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'), "
        "current_user::text, pg_is_in_recovery()"
    )
    version = link.info.server_version
    tls = "TLS" if link.pgconn.ssl_in_use else "no TLS"
    took_ms = median_ms(lambda: link.rows("SELECT 1"))
    said = (
        f"PostgreSQL {version // 10_000}.{version % 10_000}, user {role}, {tls}, {used} connections in use, "
        f"round trip {took_ms:.2f} ms"
    )
    if is_standby:
        return Check("server", "warn", f"{said}; this is a standby: queries work, but ingest does not; use the primary")
    return Check("server", "ok", said)


def _check_privileges(link: Link, tables: Tables) -> Check:
    found = privileges(link, tables)
    user, schema = f'user "{found.user}"', tables.address.schema
    if found.unreadable:
        names = ", ".join(found.unreadable)
        grant = f'GRANT SELECT ON {names} TO "{found.user}"'
        return Check.failed("privileges", HsimhashError(f"{user} cannot read {names}; run {grant}"))
    if found.unwritable:
        names = ", ".join(found.unwritable)
        grant = f'GRANT {", ".join(found.lacking)} ON {names} TO "{found.user}"'
        return Check(
            "privileges",
            "warn",
            f"{user} can query the index, but cannot write to {names}; to allow writes, run {grant}",
        )
    if found.can_rebuild:
        return Check("privileges", "ok", f"{user} can read and write, and owns the tables")
    lack = f"does not have CREATE on schema {schema}" if found.owns else "does not own the tables"
    return Check(
        "privileges",
        "ok",
        f"{user} can read and write, but {lack}: large loads keep the database indexes and take longer, and "
        f"'hsimhash check --repair' cannot create missing indexes",
    )


def _check_settings(link: Link) -> Iterator[Check]:
    found = dict(link.rows(_SETTINGS, _ASKED))
    unsafe = [name for name in ("fsync", "full_page_writes") if found[name] == "off"]
    if unsafe:
        names = " and ".join(unsafe)
        yield Check("durability", "warn", f"a crash of the machine may damage the index; turn on {names}")
    else:
        yield Check("durability", "ok", "acknowledged commits are on the server's disk")
    if found["autovacuum"] == "off":
        yield Check("vacuum", "warn", "autovacuum is off: tables grow and queries slow down; turn it on")
    else:
        yield Check("vacuum", "ok", "autovacuum is on")


def _check_indexes(store: DatabaseStore) -> Check:
    missing = missing_indexes(store.session, store.tables)
    if missing:
        return Check(
            "indexes",
            "warn",
            f"missing {', '.join(missing)} (normal during a first load): queries read the whole table; if no load or "
            f"relayout is running or unfinished, create the indexes with 'hsimhash check --repair'",
        )
    return Check("indexes", "ok", f"all {len(store.tables.indexes())} exist")


def _check_size(store: DatabaseStore) -> Check:
    tables = [store.tables.documents, store.tables.fingerprints]

    def read(link: Link) -> tuple[int, int, int]:
        statement = (
            "SELECT sum(pg_total_relation_size(relid))::bigint, sum(n_live_tup)::bigint, sum(n_dead_tup)::bigint "
            "FROM pg_stat_user_tables WHERE relid = ANY($1::text[]::regclass[]::oid[])"
        )
        size, live, dead = link.rows(statement, tables)[0]
        return size, live, dead

    size, live, dead = store.session.call(read)
    said = f"{size >> 20:,} MiB, {live:,} rows, {dead:,} dead rows"
    if dead > _DEAD_SHARE * live + 10_000:
        return Check("tables", "warn", f"{said}: autovacuum is falling behind; run VACUUM ANALYZE, or tune autovacuum")
    return Check("tables", "ok", said)

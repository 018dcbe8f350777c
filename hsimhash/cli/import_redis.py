"""`hsimhash import-redis`: import fingerprints from the plain Redis scheme that many articles describe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import click
import numpy as np

from hsimhash.cli.console import print_json
from hsimhash.cli.help import Command
from hsimhash.cli.options import open_index, utf8, with_settings
from hsimhash.errors import in_shell
from hsimhash.fingerprint import format_fingerprint
from hsimhash.fingerprint.bits import Uint64s, sorted_distinct
from hsimhash.settings import Settings
from hsimhash.store.base import JOB_DEADLINE_S
from hsimhash.store.redis.address import RedisAddress
from hsimhash.store.redis.session import RedisSession

_AT_ONCE = 1_000  # keys or members to read per call
_PAGE = 20_000  # fingerprints per batch


@click.command("import-redis", cls=Command)
@click.argument("source", type=utf8, metavar="URL")
@click.option(
    "--match",
    type=utf8,
    default="*",
    metavar="PATTERN",
    help="Read only sets whose keys match this pattern, as in SCAN.",
)
@with_settings("store")
def import_redis_command(settings: Settings, source: str, match: str) -> None:
    """Import fingerprints from sets in Redis.

    \b
    Example: hsimhash create-table --store redis://cache:6379/0?prefix=pages
             hsimhash import-redis redis://cache:6379/0 --match 'simhash:*' --store redis://cache:6379/0?prefix=pages

    import-redis reads the scheme that many articles describe: one set per segment, whose members are fingerprints in
    hex. The scheme does not have ids, so a document's id is its fingerprint in 16 hex digits. The index must already
    exist and use the profile that made the fingerprints. The sets are not changed, and other programs can write to them
    during the import. Run the command again to import new fingerprints.
    """
    try:
        RedisAddress.parse(source)
    except ValueError as error:
        raise click.BadParameter(in_shell(error), param_hint="URL") from error
    members = added = 0
    with open_index(settings, is_job=True) as index:
        for fingerprints in plain_fingerprints(source, match):
            members += len(fingerprints)
            added += index.add_many(fingerprints, list(map(format_fingerprint, fingerprints.tolist())))
    print_json({"members": members, "added": added})


def plain_fingerprints(url: str, match: str) -> Iterator[Uint64s]:
    """Yield the fingerprints of all sets whose keys match a Redis pattern, in batches of distinct fingerprints.

    A fingerprint may occur again in another batch, because the scheme stores each one under several segments. The
    function does not write to the server.

    Raises:
        ValueError: A member is not a fingerprint in hex.
    """
    with closing(RedisSession(RedisAddress.parse(url), JOB_DEADLINE_S)) as session:
        page: list[int] = []
        for key, members in _sets(session, match):
            page += [_fingerprint(key, member) for member in members]
            if len(page) >= _PAGE:
                yield sorted_distinct(np.array(page, np.uint64))
                page = []
        yield sorted_distinct(np.array(page, np.uint64))


def _sets(session: RedisSession, match: str) -> Iterator[tuple[bytes, list[bytes]]]:
    """Yield the keys of sets with some of their members. Concurrent changes may or may not be included."""
    for _, keys in _scanned(session, "SCAN", ("MATCH", match, "COUNT", _AT_ONCE, "TYPE", "set")):
        for key in keys:
            for _, members in _scanned(session, "SSCAN", ("COUNT", _AT_ONCE), key):
                yield key, members


def _scanned(
    session: RedisSession, command: str, options: tuple[str | int, ...], *key: bytes
) -> Iterator[tuple[bytes, list[bytes]]]:
    cursor = b"0"
    while True:
        cursor, found = session.call(command, *key, cursor, *options)
        yield cursor, found
        if cursor == b"0":
            return


def _fingerprint(key: bytes, member: bytes) -> int:
    try:
        value = int(member, 16)
    except ValueError:
        value = -1
    if not 0 <= value < 1 << 64:
        raise ValueError(
            f"member {member[:40]!r} of set {key[:80]!r} is not a fingerprint in hex; pass --match to select "
            f"only the sets of fingerprints"
        )
    return value

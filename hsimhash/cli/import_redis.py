"""`hsimhash import-redis`: fingerprints out of the plain scheme on Redis that articles describe."""

from __future__ import annotations

import click

from hsimhash.cli.console import print_json
from hsimhash.cli.options import Settings, open_index, utf8, with_settings
from hsimhash.fingerprint import format_fingerprint
from hsimhash.store import check_url, is_redis
from hsimhash.store.redis.plain import plain_fingerprints


@click.command("import-redis")
@click.argument("source", type=utf8, metavar="URL")
@click.option(
    "--match", type=utf8, default="*", metavar="PATTERN", help="Which keys, as Redis's SCAN matches; all sets."
)
@with_settings("store")
def import_redis_command(settings: Settings, source: str, match: str) -> None:
    """Bring fingerprints into an index from sets on a Redis: a set for each segment, its members fingerprints in hex.

    That scheme has no ids, so a document's id is its fingerprint, 16 hexadecimal digits. The index must be there;
    'create-table' makes it, with the profile whose fingerprints they are. The sets are only read, and may be written
    meanwhile; the same command again adds what is new.

    \b
    Example: hsimhash create-table --store redis://cache:6379/0?prefix=pages
             hsimhash import-redis redis://cache:6379/0 --match 'simhash:*' --store redis://cache:6379/0?prefix=pages
    """
    if not is_redis(source):
        raise click.BadParameter(
            f"{source!r} is not the URL of a Redis, such as redis://cache:6379/0", param_hint="URL"
        )
    check_url(source)
    members = added = 0
    with open_index(settings, is_job=True) as index:
        for fingerprints in plain_fingerprints(source, match):
            members += len(fingerprints)
            added += index.add_many(fingerprints, list(map(format_fingerprint, fingerprints.tolist())))
    print_json({"members": members, "added": added})

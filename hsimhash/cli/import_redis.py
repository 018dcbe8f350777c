"""`hsimhash import-redis`: import fingerprints from the plain Redis scheme that articles describe."""

from __future__ import annotations

import click

from hsimhash.cli.console import print_json
from hsimhash.cli.help import Command
from hsimhash.cli.options import Settings, open_index, utf8, with_settings
from hsimhash.errors import in_shell
from hsimhash.fingerprint import format_fingerprint
from hsimhash.store.redis.address import RedisAddress
from hsimhash.store.redis.plain import plain_fingerprints


@click.command("import-redis", cls=Command)
@click.argument("source", type=utf8, metavar="URL")
@click.option("--match", type=utf8, default="*", metavar="PATTERN", help="Read only sets whose keys match, as in SCAN.")
@with_settings("store")
def import_redis_command(settings: Settings, source: str, match: str) -> None:
    """Import fingerprints from sets in Redis.

    \b
    Example: hsimhash create-table --store redis://cache:6379/0?prefix=pages
             hsimhash import-redis redis://cache:6379/0 --match 'simhash:*' --store redis://cache:6379/0?prefix=pages

    This reads the scheme that many articles describe: one set per segment, whose members are fingerprints in hex. The
    scheme has no ids, so a document's id is its fingerprint in 16 hex digits. The index must exist, with the profile
    that made the fingerprints. The sets are not changed and can be written meanwhile; run the command again to import
    what is new.
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

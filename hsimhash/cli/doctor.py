"""`hsimhash doctor`: check an index from the outside in; report what is wrong and how to fix it."""

from __future__ import annotations

from contextlib import suppress

import click

from hsimhash.cli.console import print_json, print_line
from hsimhash.cli.exit_codes import ExitCode, exit_code_of
from hsimhash.cli.help import Command
from hsimhash.cli.options import json_option, opening_of, refuse_flags, refuse_memory, with_settings
from hsimhash.fingerprint import Profile
from hsimhash.native_package import signer_name
from hsimhash.settings import Settings
from hsimhash.store import backend_of
from hsimhash.store.checkup import Check


@click.command("doctor", cls=Command)
@with_settings("store")
@click.option("--write", "writes", is_flag=True, help="HBase: also write a cell on each server, then delete it.")
@click.option("--quick", "is_quick", is_flag=True, help="Check only whether the index can be read: exit code 0 or 4.")
@click.option(
    "--load",
    "processes",
    type=click.IntRange(1, 10_000),
    is_flag=False,
    flag_value=100,
    metavar="N",
    help="HBase: open as many connections as N processes would (default: 100), and time the last one. Do not use it "
    "while programs use the gateways.",
)
@json_option
def doctor_command(settings: Settings, writes: bool, is_quick: bool, processes: int | None, as_json: bool) -> ExitCode:
    """Diagnose an index that fails or is slow, and print what to do.

    \b
    Example: hsimhash doctor --store hbase://gw1,gw2/crawl:pages
             hsimhash doctor --store hbase://gw1/crawl:pages --quick
             hsimhash doctor --store hbase://gw1,gw2/crawl:pages --load 200

    doctor prints a line per check: ok, warn or fail. For an embedded index, it checks the folder, the record, the
    writer, free pages and the disk. On HBase, it checks each gateway, the table and its settings, the record, the
    regions and the round trips. With --write, it also checks each server's clock, and that the server accepts a write.
    On PostgreSQL, it checks the server, the user's privileges, durability, vacuum and the tables. On Redis, it checks
    the server, persistence, eviction, memory and the record. The last lines are settings to paste into hsimhash.yaml.

    Exit codes: 0 nothing failed, 4 unreachable, 5 no index, 6 something else failed.
    """
    refuse_memory(settings)
    refuse_flags(settings.store, *(["--write"] if writes else []), *(["--load"] if processes is not None else []))
    backend, found = backend_of(settings.store), list[Check]()
    how = opening_of(settings)
    for check in backend.checks(settings.store, how, is_quick=is_quick, writes=writes, processes=processes):
        found.append(check)
        if not as_json:
            print_line(f"{check.status:4}  {check.name}: {' '.join(check.message.splitlines())}")
    code = ExitCode.DONE if all(check.status != "fail" for check in found) else _exit_code(found, is_quick=is_quick)
    if as_json:
        checks = [{"name": one.name, "status": one.status, "message": one.message} for one in found]
        is_well = code == ExitCode.DONE
        print_json({"url": settings.store, "is_well": is_well, "signed_by": signer_name(), "checks": checks})
    elif any(check.record for check in found) and not is_quick:
        _print_settings(settings, found)
    return code


def _exit_code(found: list[Check], *, is_quick: bool) -> ExitCode:
    if is_quick:
        return ExitCode.STORE_UNREACHABLE
    # If one gateway is down but another one answers, the index is still reachable.
    behind = [check for check in found if not check.name.startswith("gateway")]
    codes = [exit_code_of(check.error) for check in behind or found if check.error]
    known = (ExitCode.STORE_UNREACHABLE, ExitCode.MISMATCH)
    return next((code for code in known if code in codes), ExitCode.PROBLEMS_FOUND)


def _print_settings(settings: Settings, found: list[Check]) -> None:
    print_line("")
    print_line(f"# fingerprints are made by {signer_name()}")
    print_line("# with these lines in hsimhash.yaml, other commands use this index without --store")
    print_line(f"store: {settings.store}")
    for record in (check.record for check in found if check.record):
        print_line(f'layout: "{record.layout.name}"')
        with suppress(ValueError):  # a profile from a newer release
            if (profile := Profile.from_json(record.profile)).is_known_by_name:
                print_line(f"profile: {profile.name}")

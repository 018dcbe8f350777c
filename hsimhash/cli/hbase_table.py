"""Making the table of an index on HBase."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from hsimhash import rowkey
from hsimhash.cli.console import plural, print_line, say
from hsimhash.cli.record import refuse_others
from hsimhash.cli.sample import read_sample
from hsimhash.errors import HsimhashError, IndexExistsError, IndexNotFoundError
from hsimhash.fingerprint import Profile
from hsimhash.layout import Layout
from hsimhash.settings import Settings
from hsimhash.store import Record, open_store
from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.admin import Admin
from hsimhash.store.hbase.opening import create_hbase_store
from hsimhash.store.hbase.table import (
    AUTO_REGIONS,
    Table,
    TableSettings,
    alter_lines,
    deviations,
    families,
    shell_lines,
)


@dataclass(frozen=True, slots=True)
class Wish:
    """What the options of `create-table` ask for beyond the settings; no number of regions: `AUTO_REGIONS`."""

    regions: int | None = None
    sample: Path | None = None
    ttl_s: int | None = None
    compression: str = "NONE"
    family_options: tuple[tuple[str, str], ...] = ()
    is_dry_run: bool = False
    is_for_shell: bool = False
    is_plain_allowed: bool = False

    def table_settings(self, layout: Layout, fingerprint_format: str) -> TableSettings:
        """Return how the table is to be made; `ValueError` names what cannot be."""
        sample = None
        if self.sample is not None:
            sample = read_sample(self.sample, "--splits-from", fingerprint_format)
        splits = rowkey.splits(layout, self.regions or AUTO_REGIONS, sample=sample)
        return TableSettings(tuple(splits), self.ttl_s, self.compression.upper(), self.family_options)


def create_on_hbase(settings: Settings, wish: Wish) -> None:
    """Do what `create-table` was asked for."""
    address = Address.parse(settings.store)
    wanted = wish.table_settings(Layout.parse(settings.layout), settings.fingerprint_format)
    if wish.is_for_shell:
        for line in shell_lines(address, wanted):
            print_line(line)
        say(f"then 'hsimhash create-table --store {settings.store}' writes the index's record into the table")
    elif wish.is_dry_run:
        _tell(settings, address, wanted)
    else:
        is_new = _make_table(address, wanted, wish)
        _make_record(settings, is_new=is_new)


def _make_table(address: Address, wanted: TableSettings, wish: Wish) -> bool:
    """Make the table where there is none; return whether it was made."""
    with Admin(address) as admin:
        found = admin.family_names()
        if found:
            _check_families(address, found)
            _warn_of_deviations(admin, address, wanted)
            _warn_of_regions(admin, wish)
            return False
        try:
            if admin.can_split:
                admin.create_table(wanted)
            else:
                _make_plain(admin, address, wanted, is_allowed=wish.is_plain_allowed)
        except IndexExistsError:  # another process was quicker
            return False
    return True


def _check_families(address: Address, found: set[str]) -> None:
    missing = {family.name for family in families(TableSettings())} - found
    if missing:
        raise IndexExistsError(
            f"table {address.full_table.decode()} is there, and not hsimhash's: it lacks the column families "
            f"{', '.join(sorted(missing))}; choose another name"
        )


def _warn_of_deviations(admin: Admin, address: Address, wanted: TableSettings) -> None:
    table = _described(admin)
    differing = deviations(table, wanted) if table else []
    for one in differing:
        say(f"the table is there: {one}")
    _show(alter_lines(address, wanted, differing), "to alter it, in hbase shell:")
    if table is None and (wanted.ttl_s, wanted.compression, wanted.family_options) != (None, "NONE", ()):
        say(
            "Thrift1 does not tell how the table is set, and alters none: --ttl, --compression and --family-option are "
            "for a new one"
        )


def _warn_of_regions(admin: Admin, wish: Wish) -> None:
    count = admin.region_count()
    if wish.sample is not None or (wish.regions or count) != count:
        say(
            f"the table is there and keeps its {plural(count, 'region')}: --regions and --splits-from are for a new one"
        )


def _described(admin: Admin) -> Table | None:
    """Return how the table is made, None where there is none, or the gateway does not tell."""
    return admin.table() if admin.can_describe else None


def _make_plain(admin: Admin, address: Address, wanted: TableSettings, *, is_allowed: bool) -> None:
    if is_allowed and not admin.can_describe:
        admin.create_plain_table(wanted)
        say(
            "made a plain table: one region, no encoding, no prefix Bloom filter, no split restriction; it works, but "
            "slower, and one server has all the load until HBase splits it"
        )
        return
    _show(shell_lines(address, wanted), "in hbase shell:")
    raise HsimhashError(
        f"the gateway cannot make table {address.full_table.decode()} as it must be: that takes Thrift2, not framed; "
        f"run the lines above in hbase shell, then this command again"
        f"{'' if admin.can_describe else '; or take a lesser table with --allow-plain'}"
    )


def _show(lines: list[str], title: str) -> None:
    if lines:
        say(title)
    for line in lines:
        click.echo(line, err=True)


def _make_record(settings: Settings, *, is_new: bool) -> None:
    try:
        _write_record(settings)
    except IndexExistsError as error:
        refuse_others(settings, error)
        say(f"{settings.store} is already there with this layout and profile")
    else:
        what = "made" if is_new else "wrote the index's record into"
        say(f"{what} {settings.store} with layout {settings.layout} and profile {settings.profile}")


def _write_record(settings: Settings) -> None:
    create_hbase_store(settings.store, _record(settings)).close()


def _record(settings: Settings) -> Record:
    return Record(Layout.parse(settings.layout), Profile.named(settings.profile).to_json())


def _tell(settings: Settings, address: Address, wanted: TableSettings) -> None:
    """Print what would be made and what should be altered."""
    with Admin(address) as admin:
        found = admin.family_names()
        if not found:
            _tell_new(admin, address, wanted)
        else:
            _check_families(address, found)
            _tell_table(_described(admin), address, wanted)
    if found and _has_record(settings):
        refuse_others(settings)
        print_line(f"= ok record: layout {settings.layout}, profile {settings.profile}")
    else:
        print_line(f"+ create record: layout {settings.layout}, profile {settings.profile}")


def _tell_new(admin: Admin, address: Address, wanted: TableSettings) -> None:
    if admin.can_describe and address.namespace not in admin.namespaces():
        print_line(f"+ create namespace {address.namespace}: by yourself, in hbase shell")
    if not admin.can_split:
        say("this gateway cannot make the table as it must be; see --print-shell and --allow-plain")
    print_line(f"+ create table {address.full_table.decode()}: {plural(len(wanted.splits) + 1, 'region')}")
    for family in families(wanted):
        values = ", ".join(f"{name}={value}" for name, value in family.attributes.items())
        print_line(f"+ create family {family.name}: {values}")


def _tell_table(table: Table | None, address: Address, wanted: TableSettings) -> None:
    if table is None:
        print_line(f"= ok table {address.full_table.decode()}, as far as Thrift1 tells")
        return
    differing = deviations(table, wanted)
    for place in ("", *(family.name for family in families(wanted))):
        own = [one for one in differing if one.place == place]
        for one in own:
            print_line(f"~ alter {one}")
        if not own:
            print_line(f"= ok {f'family {place}' if place else f'table {address.full_table.decode()}'}")
    _show(alter_lines(address, wanted, differing), "hsimhash alters no table; in hbase shell:")


def _has_record(settings: Settings) -> bool:
    try:
        open_store(settings.store).close()
    except IndexNotFoundError:
        return False
    return True

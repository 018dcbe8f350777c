"""Settings: flag beats environment beats file beats default, in one frozen object.

The file is YAML, `key: value` (`conf/hsimhash.yaml` shows every key). The first of these that is there is read, no
other: the one asked for, `$HSIMHASH_CONFIG`, `./hsimhash.yaml`, `~/.config/hsimhash/hsimhash.yaml`. In the environment
a key is `HSIMHASH_` and its name in capitals; an empty variable counts as not set, and `null` as no value.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import yaml
from pydantic import AfterValidator, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from hsimhash.errors import HsimhashError
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.formats import formats_named
from hsimhash.inputs.files import InputOptions
from hsimhash.layout import Layout
from hsimhash.load.ingest import OnDuplicate
from hsimhash.store import HBASE_SCHEMES
from hsimhash.store.hbase.address import Address

DEFAULT = "default"  # the source of what nobody set
PREFIX = "HSIMHASH_"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
OTHER_VARIABLES = (CONFIG_VARIABLE, f"{PREFIX}DATA")  # known, and no settings
FILE_NAME = "hsimhash.yaml"
LOCK_TIMEOUT_MOST_S = 86_400


class SettingsError(HsimhashError):
    """The settings file or a variable has an unknown key or a bad value."""


def _store(url: str) -> str:
    try:
        url.encode()
    except UnicodeEncodeError as error:
        raise ValueError("it should be UTF-8") from error
    scheme, _, place = url.partition("://")
    if scheme in HBASE_SCHEMES and place:
        Address.parse(url)
    elif scheme not in ("lmdb", "memory") or not place:
        raise ValueError(
            "use lmdb://relative/path, lmdb:///absolute/path, hbase://gateway:9091/namespace:table or memory://name"
        )
    return url


def _layout(text: str) -> str:
    Layout.parse(text)
    return text


def _profile(name: str) -> str:
    Profile.named(name)
    return name


def _fingerprint_format(name: str) -> str:
    formats_named(name)
    return name


def _format(name: str) -> str:
    InputOptions(format=name)
    return name


class Settings(BaseSettings):
    """What the commands run with. `model_fields_set` has the keys that somebody set, whatever the value.

    It reads no environment by itself: `load` is given one.
    """

    model_config = SettingsConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True, allow_inf_nan=False)

    store: Annotated[str, AfterValidator(_store)] = "lmdb://hsimhash-index"
    layout: Annotated[str, AfterValidator(_layout)] = "10"
    profile: Annotated[str, AfterValidator(_profile)] = "auto-1"
    max_distance: int | None = Field(None, ge=0, le=64)
    workers: int | None = Field(None, ge=1)
    lock_timeout_s: float = Field(30.0, ge=0, le=LOCK_TIMEOUT_MOST_S)
    on_duplicate: OnDuplicate = "add"
    text_field: str = Field("text", min_length=1)
    id_field: str = Field("id", min_length=1)
    format: Annotated[str, AfterValidator(_format)] = "auto"
    fingerprint_format: Annotated[str, AfterValidator(_fingerprint_format)] = "auto"
    job: str | None = Field(None, min_length=1)

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_truth_value(cls, value: object) -> object:
        if isinstance(value, bool):  # pydantic would read `workers: yes` as 1
            raise ValueError("must not be true or false")
        return value

    @classmethod
    def settings_customise_sources(  # noqa: D102
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


KEYS = tuple(Settings.model_fields)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, and for every key where its value came from: `default`, `file:line`, a variable or a flag."""

    settings: Settings
    sources: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Given:
    value: object
    source: str
    is_flag: bool = False


def flag_of(key: str) -> str:
    """Return the command line's flag for a key: `--lock-timeout` for `lock_timeout_s`."""
    return "--" + key.removesuffix("_s").replace("_", "-")


def variable_of(key: str) -> str:
    """Return the environment variable for a key."""
    return PREFIX + key.upper()


def load(
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> Loaded:
    """Return the settings that flags, environment and file amount to.

    Args:
        flags: values by key.
        environment: variables by name; those that do not begin with `HSIMHASH_` are passed over.
        config: the settings file to read.

    Raises:
        SettingsError: an unknown key, a bad value or an unreadable file; the message names file and line, or variable.
        ValueError: a bad flag.
    """
    environment = environment or {}
    path = find_file(environment, config)
    given = {
        **(_from_file(path) if path else {}),
        **_from_environment(environment),
        **{key: _Given(value, flag_of(key), is_flag=True) for key, value in (flags or {}).items()},
    }
    try:
        settings = Settings.model_validate({key: one.value for key, one in given.items()})
    except ValidationError as error:
        _refuse(error, given)
    return Loaded(settings, {key: given[key].source if key in given else DEFAULT for key in KEYS})


def find_file(environment: Mapping[str, str], config: Path | None = None) -> Path | None:
    """Return the settings file to read, None where there is none; one that was asked for must be there."""
    asked = config or (Path(environment[CONFIG_VARIABLE]) if environment.get(CONFIG_VARIABLE) else None)
    if asked is not None:
        if not _is_there(asked):
            raise SettingsError(
                f"there is no settings file {asked} ({'--config' if config else CONFIG_VARIABLE} names it)"
            )
        return asked
    home = environment.get("HOME")
    usual = [Path(FILE_NAME), *([Path(home, ".config", "hsimhash", FILE_NAME)] if home else [])]
    return next((path for path in usual if _is_there(path)), None)


def _is_there(path: Path) -> bool:
    """Whether there is something of that name, be it a folder or a link that leads nowhere: reading it tells."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _unreadable(path, error) from error
    return True


def _from_environment(environment: Mapping[str, str]) -> dict[str, _Given]:
    known = {variable_of(key): key for key in KEYS}
    given = {}
    for name in sorted(name for name in environment if name.startswith(PREFIX) and name not in OTHER_VARIABLES):
        value = environment[name]
        if name not in known:
            raise SettingsError(f"unknown variable {name}={value!r:.80}; {_nearest(name, [*known, *OTHER_VARIABLES])}")
        if value:
            given[known[name]] = _Given(None if value == "null" else value, name)
    return given


def _from_file(path: Path) -> dict[str, _Given]:
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), yaml.SafeLoader)
        if root is None:
            return {}
        if not isinstance(root, yaml.MappingNode):
            raise SettingsError(f"{path}:{root.start_mark.line + 1}: settings are lines of key: value")
        return _from_mapping(path, root)
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise SettingsError(f"{where}: no YAML: {getattr(error, 'problem', None) or error}") from error
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> SettingsError:
    return SettingsError(f"settings file {path} cannot be read: {error.strerror}; mend it, or remove it")


def _from_mapping(path: Path, root: yaml.MappingNode) -> dict[str, _Given]:
    given: dict[str, _Given] = {}
    constructor = yaml.constructor.SafeConstructor()
    for key_node, value_node in root.value:
        where = f"{path}:{key_node.start_mark.line + 1}"
        key = str(key_node.value)
        try:
            value = constructor.construct_object(value_node, deep=True)
            repr(value)  # for messages; of a number with too many digits it fails
        except ValueError as error:
            raise SettingsError(
                f"{where}: {key} = {value_node.value!r:.80} is no number or date that can be read; put it in quotes"
            ) from error
        if key not in KEYS:
            raise SettingsError(f"{where}: unknown key {key!r:.80} = {value!r:.80}; {_nearest(key, KEYS)}")
        if key in given:
            raise SettingsError(f"{where}: {key} = {value!r:.80} stands here again, first at {given[key].source}")
        given[key] = _Given(value, where)
    return given


def _nearest(name: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0)[0]
    return f"the nearest known one is {nearest}; 'hsimhash settings show' lists all"


def _refuse(error: ValidationError, given: Mapping[str, _Given]) -> NoReturn:
    problem = error.errors(include_url=False)[0]
    key = str(problem["loc"][0])
    one = given[key]
    if problem["type"] == "string_unicode":
        reason = "it should be UTF-8"
    else:
        reason = str(problem.get("ctx", {}).get("error") or problem["msg"].replace("Input should", "it should"))
    message = f"{one.source}: {key} = {one.value!r:.80}: {reason}"
    raise (ValueError if one.is_flag else SettingsError)(message) from error

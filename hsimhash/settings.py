"""Settings in one frozen object: flags override the environment, which overrides the file and the defaults.

The file is YAML with lines of the form `key: value` (`conf/hsimhash.yaml` shows every key). Only the first of these
files that exists is read: the file passed to `load`, `$HSIMHASH_CONFIG`, `./hsimhash.yaml`,
`~/.config/hsimhash/hsimhash.yaml`. The environment variable for a key is `HSIMHASH_` followed by the key in capitals.
An empty variable is treated as not set, and `null` means no value.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_args

from hsimhash.errors import SettingsError, most_like
from hsimhash.fingerprint import DEFAULT_PROFILE, Profile
from hsimhash.fingerprint.bits import formats_named
from hsimhash.fingerprint.signature import MAX_SKETCH, max_sketch_in
from hsimhash.inputs.files import InputOptions
from hsimhash.layout import FINGERPRINT_BITS, Layout
from hsimhash.load.ingest import OnDuplicate
from hsimhash.query_log import SLOW_S
from hsimhash.store import check_url
from hsimhash.store.urls import masked, may_be_url

if TYPE_CHECKING:
    import yaml

DEFAULT = "default"  # source of settings that were not set
PREFIX = "HSIMHASH_"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
OTHER_VARIABLES = (CONFIG_VARIABLE, f"{PREFIX}DATA", f"{PREFIX}NATIVE")  # known variables that are not settings
# Variables that Kubernetes and `docker run --link` set in a container for a service whose name begins with hsimhash.
_SERVICE_VARIABLE = re.compile(
    rf"{PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?|NAME|ENV_\w+)", re.ASCII
)
FILE_NAME = "hsimhash.yaml"
LOCK_TIMEOUT_MOST_S = 86_400
_NULL = "tag:yaml.org,2002:null"

T = TypeVar("T", int, float)


def _checked(check: Callable[[str], object]) -> Callable[[str], str]:
    """Return a function that returns a text unless `check` raises `ValueError` for it."""

    def checked(text: str) -> str:
        check(text)
        return text

    return checked


def _whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return a function that parses integers within bounds, and raises `ValueError` for anything else."""
    return _number(int, "an integer", least, most)


def _seconds(most: int | None = None) -> Callable[[str], float]:
    """Return a function that parses seconds up to a bound, and raises `ValueError` for anything else."""
    return _number(float, "a finite number", 0, most)


def _number(parse: Callable[[str], T], kind: str, least: int, most: int | None) -> Callable[[str], T]:
    expected = f"{kind} of at least {least}" if most is None else f"{kind} from {least} to {most}"

    def parsed(text: str) -> T:
        with suppress(ValueError):
            number = parse(text)
            if least <= number < math.inf and (most is None or number <= most):
                return number
        raise ValueError(f"must be {expected}")

    return parsed


def _not_empty(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


def _on_duplicate(text: str) -> str:
    *others, last = map(repr, get_args(OnDuplicate))
    if text not in get_args(OnDuplicate):
        raise ValueError(f"must be {', '.join(others)} or {last}")
    return text


def address_in(text: str) -> tuple[str, int]:
    """Parse `host:port`, or `[host]:port` for IPv6; raise `ValueError` if it is invalid."""
    host, colon, port = text.rpartition(":")
    is_ipv6 = host.startswith("[") and host.endswith("]")
    if not (
        colon and host and (is_ipv6 or ":" not in host) and re.fullmatch("[0-9]{1,5}", port) and int(port) < 1 << 16
    ):
        raise ValueError("must be host:port, such as 127.0.0.1:8343 or [::1]:8343")
    return host.strip("[]") if is_ipv6 else host, int(port)


def host_names(text: str) -> tuple[str, ...]:
    """Parse host names separated by commas; raise `ValueError` for anything else."""
    names = [name.strip().lower() for name in text.split(",")]
    if not all(re.fullmatch("[a-z0-9_.-]+", name) for name in names):
        raise ValueError("must be host names separated by commas, such as search,search.example.com")
    return tuple(names)


def web_origins(text: str) -> tuple[str, ...]:
    """Parse origins in `https://name,http://name:port`; raise `ValueError` for anything else."""
    origins = [origin.strip().lower() for origin in text.split(",")]
    if not all(re.fullmatch(r"https?://([a-z0-9_.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?", origin) for origin in origins):
        raise ValueError("must be origins of web pages separated by commas, such as https://app.example.com")
    return tuple(origins)


def _setting(parse: Callable[[str], object], default: object = None, **options: Any) -> Any:
    """Return a field for a setting. `parse` raises `ValueError` for an invalid text."""
    return field(default=default, metadata={"parse": parse}, **options)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of all commands. `given` has the keys that were set, even if set to their defaults."""

    store: str = _setting(_checked(check_url), "lmdb://hsimhash-index")
    redis_password: str | None = _setting(str, repr=False)
    layout: str | None = _setting(_checked(Layout.parse))
    profile: str = _setting(_checked(Profile.named), DEFAULT_PROFILE)
    max_distance: int | None = _setting(_whole_number(0, FINGERPRINT_BITS))
    max_sketch: int | None = _setting(max_sketch_in, MAX_SKETCH)
    workers: int | None = _setting(_whole_number(1))
    lock_timeout_s: float | None = _setting(_seconds(LOCK_TIMEOUT_MOST_S))  # deprecated: set it in the URL
    on_duplicate: OnDuplicate = _setting(_on_duplicate, "add")  # noqa: RUF009 (`_setting` calls `field`)
    text_field: str = _setting(_not_empty, "text")
    id_field: str | None = _setting(_not_empty)
    format: str = _setting(_checked(InputOptions), "auto")
    extract: str = _setting(_checked(lambda text: InputOptions(extract=text)), "auto")
    fingerprint_format: str = _setting(_checked(formats_named), "auto")
    job: str | None = _setting(_not_empty)
    listen: str = _setting(_checked(address_in), "127.0.0.1:8343")
    host: str | None = _setting(_checked(host_names))
    allow_origin: str | None = _setting(_checked(web_origins))
    token_file: str | None = _setting(_not_empty)
    slow_query_s: float = _setting(_seconds(), SLOW_S)
    given: frozenset[str] = field(default=frozenset(), compare=False)

    def shown(self) -> dict[str, object]:
        """Return every setting by key, without the password."""
        values = {key: getattr(self, key) for key in KEYS}
        return values | {"redis_password": None if self.redis_password is None else "**********"}


_FIELDS = {one.name: one for one in dataclasses.fields(Settings) if one.name != "given"}
KEYS = tuple(_FIELDS)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, and the source of every key: `default`, `file:line`, a variable or a flag.

    `warnings` name variables that look like settings but are not.
    """

    settings: Settings
    sources: Mapping[str, str]
    warnings: tuple[str, ...] = ()


class _Given(NamedTuple):
    value: str | None  # always text; `Settings` converts numbers
    source: str


def flag_of(key: str) -> str:
    """Return the flag for a key: `--lock-timeout` for `lock_timeout_s`."""
    return "--distance" if key == "max_distance" else "--" + key.removesuffix("_s").replace("_", "-")


def variable_of(key: str) -> str:
    """Return the environment variable for a key."""
    return PREFIX + key.upper()


def load(
    flags: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None, config: Path | None = None
) -> Loaded:
    """Load the settings from flags, environment and file.

    Args:
        flags: Values by key.
        environment: Variables by name. Variables that do not begin with `HSIMHASH_` are ignored, and so are those that
            Kubernetes and Docker set for a service of that name. Any other unknown variable causes a warning.
        config: Settings file to read.

    Raises:
        SettingsError: There is an unknown key, an invalid value or an unreadable file. The message names the file and
            line, or the variable.
        ValueError: A flag is invalid.
    """
    flags, environment = flags or {}, environment or {}
    given = {
        **_in_file(*_find_file(environment, config)),
        **_in_environment(environment),
        **{key: _Given(value, flag_of(key)) for key, value in flags.items()},
    }
    values = dict[str, Any]()
    for key in filter(given.__contains__, KEYS):
        value, source = given[key]
        try:
            values[key] = _parsed(key, value)
        except ValueError as error:
            kind = ValueError if key in flags else SettingsError
            raise kind(f"{source}: {key} = {_shown(key, value)}: {_reason(key, value or '', error)}") from None
    sources = {key: given[key].source if key in given else DEFAULT for key in KEYS}
    settings = Settings(**values, given=frozenset(values))
    return Loaded(settings, sources, tuple(_unknown_variables(environment)))


def _parsed(key: str, text: str | None) -> object:
    """Return the value of a setting; raise `ValueError` if it is invalid."""
    if text is not None:
        text.encode()
        return _FIELDS[key].metadata["parse"](text)
    if key != "max_sketch" and _FIELDS[key].default is not None:
        raise ValueError("must not be null")
    return _FIELDS[key].default


def _reason(key: str, value: str, error: ValueError) -> str:
    """Return why the value of a setting is invalid."""
    if isinstance(error, UnicodeError):
        return "must be UTF-8"
    if key != "store" and may_be_url(value):  # the error could quote parts of the URL
        return "must not be the URL of a store"
    return str(error).removeprefix(f"store {masked(value)!r}: ")  # the value is shown once


def _find_file(environment: Mapping[str, str], config: Path | None) -> tuple[Path, str]:
    """Return the path and text of the settings file. The text is empty if there is no such file."""
    asked = config or environment.get(CONFIG_VARIABLE)
    home = environment.get("HOME")
    usual = [Path(FILE_NAME), *([Path(home, ".config", "hsimhash", FILE_NAME)] if home else [])]
    for path in [Path(asked)] if asked else usual:
        text = _read(path)
        if text is not None:
            return path, text
    if asked:
        raise SettingsError(f"settings file {asked} does not exist (from {'--config' if config else CONFIG_VARIABLE})")
    return Path(FILE_NAME), ""


def _read(path: Path) -> str | None:
    """Return the text of a file, or None if it does not exist. A dangling link is an error."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from error
    except OSError as error:
        if isinstance(error, (FileNotFoundError, NotADirectoryError)) and not path.is_symlink():
            return None
        raise SettingsError(f"settings file {path} cannot be read: {error.strerror}; fix or remove it") from error


def _in_file(path: Path, text: str) -> dict[str, _Given]:
    given: dict[str, _Given] = {}
    for key_node, value_node in _pairs(path, text):
        where = f"{path}:{key_node.start_mark.line + 1}"
        key, value = str(key_node.value), None if value_node.tag == _NULL else value_node.value
        if key not in KEYS:
            raise SettingsError(f"{where}: unknown key {key!r:.80} = {_shown(key, value)}; {_nearest(key, KEYS)}")
        if not isinstance(value, str | None):
            raise SettingsError(f"{where}: {key} must be a single value, not a list or a mapping")
        if key in given:
            raise SettingsError(f"{where}: {key} = {_shown(key, value)} is set twice, first at {given[key].source}")
        given[key] = _Given(value, where)
    return given


def _pairs(path: Path, text: str) -> list[tuple[yaml.Node, yaml.Node]]:
    """Return the keys and values of a YAML file as nodes, which include their line numbers."""
    if not text:
        return []
    import yaml  # imported here because it takes 10 ms

    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise SettingsError(f"{where}: invalid YAML: {getattr(error, 'problem', None) or error}") from error
    if root is None:
        return []
    if not isinstance(root, yaml.MappingNode):
        raise SettingsError(f"{path}:{root.start_mark.line + 1}: settings must be lines of the form key: value")
    return list(root.value)


def _in_environment(environment: Mapping[str, str]) -> dict[str, _Given]:
    given = {key: (environment.get(variable_of(key)), variable_of(key)) for key in KEYS}
    return {key: _Given(None if value == "null" else value, name) for key, (value, name) in given.items() if value}


def _unknown_variables(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield a warning for each variable that may be a misspelt setting."""
    known = [*map(variable_of, KEYS), *OTHER_VARIABLES]
    for name in sorted(name for name in environment if name.startswith(PREFIX) and name not in known):
        if not _SERVICE_VARIABLE.fullmatch(name):
            yield f"unknown variable {name!r:.80} is ignored; {_nearest(name, known)}"


def _nearest(name: str, known: Iterable[str]) -> str:
    return f"did you mean {most_like(name, known)}? 'hsimhash settings show' lists all settings"


def _shown(name: str, value: object) -> str:
    """Return the value of a setting for a message, without secrets."""
    if difflib.get_close_matches("password", re.split("_", name.lower()), cutoff=0.7):
        return "…"
    is_url = isinstance(value, str) and (name not in KEYS or name == "store" or may_be_url(value))
    return repr(masked(str(value)) if is_url else value)[:80]

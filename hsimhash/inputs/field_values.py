"""Parse field values into ids, texts, times and fingerprints; every `ValueError` names the field and the problem."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from uuid import UUID

from hsimhash.durations import milliseconds_of
from hsimhash.fingerprint.bits import Formats, read_fingerprint
from hsimhash.fingerprint.custom_features import features_in, weighted_hashes
from hsimhash.fingerprint.recipe import FEATURES_PROFILE, Recipe
from hsimhash.inputs.fingerprint_format import is_written

_ANY_FEATURES = Recipe.named(FEATURES_PROFILE)
_TIME_DIGITS = 20  # no time in ms is that long, and Python refuses to convert thousands of digits
_DIGITS = re.compile("[0-9a-fA-F]{16}")


def type_name(value: object) -> str:
    """Return the JSON name of a value's type, with an article: `an object`, `a string`."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    names |= {int: "a number", float: "a number", Decimal: "a number", bytes: "bytes"}
    return names.get(type(value), f"a value of type {type(value).__name__}")


def doc_id_of(value: object, field: str) -> str:
    """Return a field's value as an id; whole numbers become digits. `check_doc_id` may still reject the id.

    Raises:
        ValueError: The value is not a string, a whole number or a UUID.
    """
    if isinstance(value, (str, UUID)):
        return str(value)
    number = integer_in(value)
    if number is None:
        what = f"{value!r:.40}" if isinstance(value, (float, Decimal)) else type_name(value)
        raise ValueError(f'"{field}" must be a string or a whole number, got {what}')
    return str(number)


def integer_in(value: object) -> int | None:
    """Return a number without a fraction as an integer, or None for anything else.

    Numbers that went through pandas are floats. A float of 2^53 or more may stand for several integers, so it is
    rejected.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53
    is_whole = is_whole or (isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value())
    return int(value) if is_whole else None  # type: ignore[call-overload]


def features_text(value: object, field: str) -> str:
    """Return a field's weighted features as JSON; raise `ValueError` if they are invalid."""
    try:
        weighted_hashes(_ANY_FEATURES, features_in(value))
    except ValueError as error:
        raise ValueError(f'"{field}": {error}') from error
    return json.dumps(value, ensure_ascii=False)


def text_of(value: object, field: str) -> str:
    """Return a field's value as text; raise `ValueError` if it is not a valid string."""
    text = string_of(value, field)
    try:
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f'"{field}" has a lone surrogate (\\ud800 to \\udfff)') from error
    return text


def string_of(value: object, field: str) -> str:
    """Return a field's value, which may have lone surrogates; raise `ValueError` if it is not a string."""
    if not isinstance(value, str):
        raise ValueError(f'"{field}" must be a string, got {type_name(value)}')
    return value


def first_seen_of(value: object, field: str) -> int | None:
    """Return a field's value as ms since 1970, or None for NaN, which pandas writes for a missing value.

    Raises:
        ValueError: The value is not a time since 1970.
    """
    if value != value:
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < _TIME_DIGITS:
        value = int(value)
    time: float | None = integer_in(value)
    time = milliseconds_of(value) if time is None else time
    if time is None or not 0 <= round(time) < 1 << 63:
        raise ValueError(f'"{field}" must be ms since 1970, or an ISO 8601 time in 1970 or later, got {value!r:.80}')
    return round(time)


def fingerprint_of(value: object, field: str, formats: Formats) -> int:
    """Return a field's value as a fingerprint; raise `ValueError` if it is not a fingerprint in these formats."""
    if not is_written(value):
        raise ValueError(f'"{field}" must be a fingerprint, got {type_name(value)}')
    return read_fingerprint(value, formats)


def digits_in(value: object, field: str) -> int:
    """Return the value of the field `sketch` or `key` as a number, or 0 if it is missing."""
    if value is None:
        return 0
    if not isinstance(value, str) or not _DIGITS.fullmatch(value):
        raise ValueError(
            f"\"{field}\" must be 16 hexadecimal digits, as 'hsimhash export' writes them, got {value!r:.60}; "
            f"rename the field if it means something else"
        )
    return int(value, 16)

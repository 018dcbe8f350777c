"""Convert Arrow values to JSON values, Decimals and UUIDs; values that cannot be converted become errors."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from hsimhash.inputs.lines import RECORD_LIMIT_BYTES, text_in

_NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_EPOCH = datetime(1970, 1, 1)
_UTC_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
TOO_LONG = f"longer than {RECORD_LIMIT_BYTES >> 20} MiB"


class ArrowValues:
    """Converts values of Arrow arrays.

    Bytes are decoded as UTF-8. Times become ISO 8601 strings, in UTC if they have a time zone. Maps become objects if
    their keys are distinct strings, else lists of pairs.
    """

    def __init__(self, arrow: Any) -> None:
        self._types = arrow.types
        self._length = arrow.compute.binary_length

    def sizes(self, array: Any) -> npt.NDArray[np.int64]:
        """Estimate the size in bytes of each value in an array, without unpacking the array."""
        kind = array.type
        if self._types.is_dictionary(kind):
            sizes = self.sizes(array.dictionary)
            indices = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
            return sizes[indices] if len(sizes) else np.zeros(len(array), np.int64)
        if hasattr(kind, "extension_name"):
            return self.sizes(array.storage)
        if self._is_text(kind):
            lengths = self._length(array).fill_null(0)
            return np.asarray(lengths.to_numpy(zero_copy_only=False)).astype(np.int64)
        if self._types.is_struct(kind) and kind.num_fields:
            return sum(map(self.sizes, array.flatten()), np.zeros(len(array), np.int64))
        if self._types.is_list(kind) or self._types.is_large_list(kind) or self._types.is_map(kind):
            return self._list_sizes(array)
        return np.full(len(array), array.nbytes // max(len(array), 1), np.int64)

    def _list_sizes(self, array: Any) -> npt.NDArray[np.int64]:
        """Return the total size of the values in each list; a dictionary value is counted each time it is used."""
        offsets = np.asarray(array.offsets.to_numpy())
        first, last = (int(offsets[at]) for at in (0, -1))
        ends = np.append(0, np.cumsum(self.sizes(array.values.slice(first, last - first))))
        return np.asarray(np.diff(ends[offsets - first]), np.int64)

    def values(self, array: Any) -> list[object]:
        """Return the values of an array; an unreadable value is returned as a `ValueError` with the reason."""
        kind = array.type
        is_text = self._types.is_string(kind) or self._types.is_large_string(kind)
        if is_text or self._types.is_boolean(kind) or self._types.is_integer(kind) or self._types.is_decimal(kind):
            try:
                return list(array.to_pylist())
            except UnicodeDecodeError:
                pass  # convert the values one by one to find the bad ones
        return [self._value_or_error(array[number]) for number in range(len(array))]

    def _is_text(self, kind: Any) -> bool:
        types = self._types
        return bool(
            types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind)
        )

    def _value_or_error(self, scalar: Any) -> object:
        try:
            return self._value(scalar, [RECORD_LIMIT_BYTES])
        except UnicodeDecodeError as error:
            return ValueError(f"not UTF-8: {error.reason} at byte {error.start}")
        except ValueError as error:
            return error
        except Exception as error:  # Arrow also raises exceptions of other types
            return ValueError(f"invalid value of type {scalar.type}: {error}")

    def _value(self, scalar: Any, left: list[int]) -> object:
        """Return a value; `left[0]` is the number of bytes that it may still take."""
        types, kind = self._types, scalar.type
        if not scalar.is_valid:
            return None
        if types.is_dictionary(kind):
            return self._value(scalar.value, left)
        if types.is_temporal(kind):
            return _temporal(types, scalar)
        if types.is_nested(kind):
            return self._nested(scalar, left)
        if hasattr(kind, "extension_name"):
            return scalar.as_py() if kind.extension_name == "arrow.uuid" else self._value(scalar.value, left)
        if types.is_floating(kind):
            return float(scalar.as_py())
        if hasattr(scalar, "as_buffer"):
            return self._text(scalar, left)
        return scalar.as_py()

    def _text(self, scalar: Any, left: list[int]) -> str:
        buffer = scalar.as_buffer()
        left[0] -= buffer.size
        if left[0] < 0:
            raise ValueError(TOO_LONG)
        return text_in(buffer.to_pybytes())

    def _nested(self, scalar: Any, left: list[int]) -> object:
        types, kind = self._types, scalar.type
        if types.is_struct(kind):
            return {kind.field(at).name: self._value(scalar[at], left) for at in range(kind.num_fields)}
        left[0] -= len(scalar.values)
        if left[0] < 0:
            raise ValueError(TOO_LONG)
        values = [self._value(one, left) for one in scalar.values]
        return _mapped(values) if types.is_map(kind) else values


def _mapped(pairs: Sequence[Any]) -> object:
    keys, values = zip(*(pair.values() for pair in pairs), strict=True) if pairs else ((), ())
    is_object = len(set(map(repr, keys))) == len(keys) and all(isinstance(key, str) for key in keys)
    return (
        dict(zip(keys, values, strict=True)) if is_object else [list(pair) for pair in zip(keys, values, strict=True)]
    )


def _temporal(types: Any, scalar: Any) -> object:
    kind = scalar.type
    if types.is_duration(kind):
        return f"{scalar.value}{kind.unit}"
    if types.is_interval(kind):
        return str(scalar.as_py())
    unit = "ms" if types.is_date64(kind) else getattr(kind, "unit", "s")
    seconds = 86_400 if types.is_date32(kind) else 1
    try:
        since = timedelta(microseconds=scalar.value * seconds * _NANOSECONDS[unit] // 1_000)
        if types.is_time(kind):
            return (datetime.min + since % _DAY).time().isoformat()
        if types.is_date(kind):
            return (_EPOCH + since).date().isoformat()
        return ((_UTC_EPOCH if kind.tz else _EPOCH) + since).isoformat()
    except OverflowError:
        raise ValueError(f"a {kind} outside the years 1 to 9999: {scalar.value}") from None

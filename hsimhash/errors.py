"""Every error that hsimhash raises of its own; a wrong argument is a `ValueError` or `TypeError` instead.

    HsimhashError
    ├── IndexExistsError
    ├── IndexNotFoundError
    ├── LayoutMismatchError
    ├── ProfileMismatchError
    ├── FormatVersionError
    ├── CorruptionError
    ├── InputUnavailableError       is_retryable
    ├── SettingsError
    ├── StoreBusyError              is_retryable
    │   └── ClaimBusyError
    ├── StoreClosedError
    ├── StoreUnavailableError       is_retryable
    │   └── StoreTimeoutError
    └── TextTooShortError
    StopAskedError

A message names the thing, the value and the remedy.
"""

from typing import ClassVar


class HsimhashError(Exception):
    """Base of our errors. Where one `is_retryable`, the same call may succeed later."""

    is_retryable: ClassVar[bool] = False


class IndexExistsError(HsimhashError):
    """An index is already there; nothing was changed."""


class IndexNotFoundError(HsimhashError):
    """There is no index."""


class LayoutMismatchError(HsimhashError):
    """The index was made with another layout; nothing was read or written."""


class ProfileMismatchError(HsimhashError):
    """The index was made with another profile, or a profile no longer gives the fingerprints it promises."""


class FormatVersionError(HsimhashError):
    """The index has a format version that this release does not know."""


class CorruptionError(HsimhashError):
    """Stored bytes are not what they must be."""


class InputUnavailableError(HsimhashError):
    """A remote input cannot be read now; what came before was read."""

    is_retryable = True


class SettingsError(HsimhashError):
    """The settings file or a variable has an unknown key or a bad value."""


class StoreBusyError(HsimhashError):
    """Another process writes."""

    is_retryable = True


class ClaimBusyError(StoreBusyError):
    """Another process claims a document near one of these."""


class StoreClosedError(HsimhashError):
    """The store was closed before this call."""


class StoreUnavailableError(HsimhashError):
    """The store cannot be reached or cannot take the write now; retry once the cause is gone."""

    is_retryable = True


class StoreTimeoutError(StoreUnavailableError):
    """The time that the caller allowed ended before the answer was complete; the message says how far it came."""


class TextTooShortError(HsimhashError):
    """The text has no feature, so it has no fingerprint."""


class StopAskedError(Exception):
    """The `stop` that a call was given asked to end; nothing was written."""

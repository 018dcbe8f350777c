"""Every error that hsimhash raises of its own; a wrong argument is a `ValueError` or `TypeError` instead.

A message names the thing, the value and the remedy.
"""


class HsimhashError(Exception):
    """Base of all errors below."""


class IndexExistsError(HsimhashError):
    """An index is already there; nothing was changed."""


class IndexNotFoundError(HsimhashError):
    """No index is there."""


class LayoutMismatchError(HsimhashError):
    """The index was made with another layout; nothing was read or written."""


class ProfileMismatchError(HsimhashError):
    """The index was made with another profile, or a profile no longer gives the fingerprints it promises."""


class FormatVersionError(HsimhashError):
    """The index has a format version that this release does not know."""


class CorruptionError(HsimhashError):
    """Stored bytes are not what they must be."""


class StoreClosedError(HsimhashError):
    """The store was closed before this call."""


class StoreBusyError(HsimhashError):
    """Another process writes; worth a retry."""


class StoreUnavailableError(HsimhashError):
    """The store cannot be reached or cannot take the write now; worth a retry once the cause is gone."""


class StoreTimeoutError(StoreUnavailableError):
    """The time that the caller allowed ended before the answer was whole; the message says how far it came."""


class TextTooShortError(HsimhashError):
    """The text has no feature, so it has no fingerprint."""


class StopAskedError(Exception):
    """The `stop` that a call was given asked to end; nothing was written."""

"""What a gateway's error means: worth a retry, or final and under which name.

Thrift1's messages are Java's stack traces; Thrift2's are often the exception's message without its class. `canRetry`
is true even for a missing table where the call was a batch, and happybase does not read it.
"""

from __future__ import annotations

import re

from thriftpy2.thrift import TApplicationException

from hsimhash.errors import CorruptionError, HsimhashError, IndexNotFoundError, StoreUnavailableError

_JAVA = re.compile(r"(?:[\w$]+\.)+([A-Z]\w*(?:Exception|Error))")
_CAUSE = re.compile(r"((?:[\w$]+\.)+[A-Z]\w*(?:Exception|Error)\b.*)")
_NO_TABLE = {"TableNotFoundException", "NamespaceNotFoundException"}
_WORTH_A_RETRY = {
    "CallQueueTooBigException",
    "CallTimeoutException",
    "ConnectException",
    "ConnectionClosedException",
    "MasterNotRunningException",
    "NoServerForRegionException",
    "NotServingRegionException",
    "PleaseHoldException",
    "RegionMovedException",
    "RegionOpeningException",
    "RegionServerAbortedException",
    "RegionServerStoppedException",
    "RegionTooBusyException",
    "RetriesExhaustedException",
    "RetriesExhaustedWithDetailsException",
    "ServerNotRunningYetException",
    "SocketTimeoutException",
    "UnknownScannerException",
}


class TransientError(StoreUnavailableError):
    """A failure that may be gone at the next try."""


class RefusedError(HsimhashError):
    """A call that the servers will never take."""


def failure(error: Exception, method: str, table: str, gateway: object) -> HsimhashError:
    """Return what an error that a gateway answered means; `TransientError` where a retry may help."""
    message = str(getattr(error, "message", None) or error)
    classes = set(_JAVA.findall(message))
    what = f"{method} on {table}: {_gist(message)}"
    if "TableNotEnabledException" in classes:
        return disabled(table)
    if _NO_TABLE & classes:
        return IndexNotFoundError(f"there is no table {table} ({what}); make one with 'hsimhash create-table'")
    if _is_but_the_table(message, table.removeprefix("default:")):
        return IndexNotFoundError(f"table {table} is missing, or disabled ({what}); 'hsimhash doctor' says which")
    if "NoSuchColumnFamilyException" in classes:
        return CorruptionError(
            f"table {table} lacks a column family ({what}); was it made with 'hsimhash create-table'?"
        )
    if "Read-only mode" in message:
        return HsimhashError(
            f"gateway {gateway} is read-only, it was started with -ro ({what}); write through another gateway"
        )
    if "AccessDeniedException" in classes:
        return HsimhashError(f"the gateway's user may not do that ({what}); grant it, or use another gateway")
    if isinstance(error, TApplicationException):
        if error.type == TApplicationException.UNKNOWN_METHOD:
            return RefusedError(f"the gateway does not know the call ({what}); is it the other Thrift?")
        return RefusedError(f"the gateway failed without saying why ({what}); its log says why")
    if _is_transient(error, classes):
        return TransientError(f"the servers refuse for now: {what}")
    return RefusedError(f"the servers refuse: {what}")


def disabled(table: str) -> StoreUnavailableError:
    """Return the error that says so of a table."""
    return StoreUnavailableError(f"table {table} is disabled; enable it in hbase shell: enable '{table}'")


def _is_but_the_table(message: str, table: str) -> bool:
    # All that Thrift2 says of a table that is missing: its name, in a batch once for all its rows.
    line = re.sub(r"^[\w.$]+Exception: ", "", _first_line(message))
    return bool(re.fullmatch(rf"(?:Failed \d+ actions?: )?{re.escape(table)}(?:: \d+ times?,.*)?", line))


def _is_transient(error: Exception, classes: set[str]) -> bool:
    if type(error).__name__ in ("IllegalArgument", "TIllegalArgument"):
        return "scanner" in str(getattr(error, "message", ""))  # its lease ran out, or the gateway was started again
    if _WORTH_A_RETRY & classes:
        return True
    can_retry = getattr(error, "canRetry", None)
    return not classes if can_retry is None or "DoNotRetryIOException" in classes else bool(can_retry)


def _gist(message: str) -> str:
    """Return a message's first line and, where that does not say it, the last cause: Java's class and what it says."""
    first = _first_line(message)
    lines = [line for line in message.splitlines() if not line.lstrip().startswith("at ")]
    causes = [found[1][:200].strip() for line in lines if (found := _CAUSE.search(line))]
    return first if not causes or causes[-1] in first else f"{first} … {causes[-1]}"


def _first_line(message: str) -> str:
    lines = message.strip().splitlines() or ["no message"]
    return lines[0][:200]

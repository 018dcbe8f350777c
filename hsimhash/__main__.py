"""Entry point for `hsimhash` and `python -m hsimhash`.

Signal handlers are installed before anything else is imported, because the imports take a large part of a second.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys


def main() -> None:
    """Run the command line. Ctrl-C and SIGTERM also end the process during imports and at exit."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:  # shells make background jobs ignore Ctrl-C
            signal.signal(number, _end)
    signal.signal(signal.SIGXCPU, _end)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # hsimhash does not use OpenBLAS threads
    # Records become many objects, none of which are in reference cycles. With the default thresholds, garbage
    # collection would take 8 % of a job's time.
    gc.set_threshold(20_000)
    from hsimhash.cli import numpy_features, program, standard_streams

    standard_streams.open_closed_streams()  # otherwise an index's files would get their descriptors
    standard_streams.ignore_stderr_errors()
    numpy_features.avoid_slow_sorts()
    try:
        program.main(prog_name="hsimhash")
    except OSError as error:  # raised by --help and --version, which print before a command begins
        standard_streams.flush_or_drop()
        sys.exit(f"hsimhash: error: standard output: {error.strerror}")


def _end(number: int, frame: object) -> None:  # noqa: ARG001
    """End the process on a signal. An exception would be lost if a module that is being imported caught it."""
    is_limit = number == signal.SIGXCPU
    said = b"error: the limit on CPU time is reached: raise it with 'ulimit -t'" if is_limit else b"interrupted"
    with contextlib.suppress(OSError):
        os.write(2, b"hsimhash: %b\n" % said)
    os._exit(1 if is_limit else 130)


if __name__ == "__main__":
    main()

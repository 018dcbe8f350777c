"""Send work to executors. If an executor's Python lacks hsimhash or a dependency, the error explains the remedy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark import cloudpickle

Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class OnExecutors:
    """Work for `mapInArrow`, pickled in a way that makes an executor without hsimhash raise a clear error."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the work; called only if this object was not pickled."""
        return self._work(batches)

    def __reduce__(self) -> tuple[Callable[[bytes], Work], tuple[bytes]]:
        return _received, (cloudpickle.dumps(self._work),)


def _received(pickled: bytes) -> Work:
    """Unpickle the work. hsimhash may be missing on the executor, so this uses only the standard library."""
    import pickle
    import socket
    import sys

    try:
        work: Work = pickle.loads(pickled)  # noqa: S301 (from the driver)
    except ModuleNotFoundError as error:
        raise RuntimeError(
            f"the executor on {socket.gethostname()} cannot import {error.name} with {sys.executable}: install "
            "hsimhash for that Python on every node, or ship an environment (spark.archives), as the Spark guide shows"
        ) from None
    return work


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # pickles `_received` itself, not its name

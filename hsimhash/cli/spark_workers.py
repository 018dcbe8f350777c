"""Start the Python processes for Spark's tasks without pandas. `hsimhash spark` configures Spark to use this module.

pyarrow imports pandas when it first converts a value, which takes more than a second in each process, and hsimhash's
tasks do not need it. Only modules without threads are imported here, because the processes are forked.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

from pyspark.daemon import manager


class _NoPandas(MetaPathFinder):
    """Makes pandas look as if it were not installed."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:  # noqa: ARG002
        if name == "pandas":
            raise ModuleNotFoundError("tasks of 'hsimhash spark' do not use pandas", name=name)


if __name__ == "__main__":
    sys.meta_path.insert(0, _NoPandas())
    manager()

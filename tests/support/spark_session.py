"""A local Spark for tests and benchmarks."""

from __future__ import annotations

import json
import math
import os
import shutil
import statistics
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

# For jobs on a few rows, which spend most of their time on starting, planning and compiling.
QUICK = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.task.maxFailures": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@contextmanager
def local_spark(cores: int = 2, partitions: int = 4, **more: str) -> Iterator[SparkSession]:
    """Yield a session with this many cores and shuffle partitions; `more` has further Spark settings."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": str(partitions),
        **more,
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("tests")
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def event_log(folder: Path) -> dict[str, str]:
    """Make a folder; return the settings that make Spark log events there, for `task_times`."""
    folder.mkdir()
    logged = {"enabled": "true", "dir": folder.as_uri(), "compress": "false", "rolling.enabled": "false"}
    return {f"spark.eventLog.{name}": value for name, value in logged.items()}


def task_times(folder: Path, since_s: float = 0.0, until_s: float = math.inf) -> dict[int, list[int]]:
    """Return the times of each stage's tasks, in ms, from the events of sessions that have ended.

    Args:
        folder: where the events are.
        since_s: only tasks that started at or after this time, as of `time.time()`.
        until_s: only tasks that started before this time.
    """
    stages: dict[int, list[int]] = {}
    for path in folder.iterdir():
        with path.open(encoding="utf-8") as lines:
            for event in map(json.loads, lines):
                is_end = event["Event"] == "SparkListenerTaskEnd"
                if is_end and since_s <= event["Task Info"]["Launch Time"] / 1_000 < until_s:
                    stages.setdefault(event["Stage ID"], []).append(event["Task Metrics"]["Executor Run Time"])
    return stages


def longest_to_median(stages: Iterable[list[int]], *, long_ms: int) -> float:
    """Return the greatest ratio of a stage's longest task to its median task.

    Only stages whose longest task takes at least `long_ms` count; without any, the ratio is infinite.
    """
    long = [ms for ms in stages if len(ms) > 2 and max(ms) >= long_ms]
    return max((max(ms) / max(1, statistics.median(ms)) for ms in long), default=math.inf)


def need_java() -> None:
    """Skip the test if Java is missing, or fail it under REQUIRE_HBASE=1."""
    if shutil.which("java") is None:
        end = pytest.fail if os.environ.get("REQUIRE_HBASE") == "1" else pytest.skip
        end("Spark needs Java 17 or 21, and there is no java")

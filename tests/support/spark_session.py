"""A Spark of this machine for tests and benchmarks."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

# For jobs on a few rows, where most of the time goes into starting, planning and compiling.
QUICK = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.task.maxFailures": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@contextmanager
def local_spark(cores: int = 2, partitions: int = 4, **more: str) -> Iterator[SparkSession]:
    """Give a session on so many cores, with so many partitions of a shuffle and more of Spark's settings."""
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


def need_java() -> None:
    """Skip the test where there is no Java, or fail it under REQUIRE_HBASE=1."""
    if shutil.which("java") is None:
        end = pytest.fail if os.environ.get("REQUIRE_HBASE") == "1" else pytest.skip
        end("Spark needs Java 17, and there is no java")

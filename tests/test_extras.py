"""Modules that need an extra name it if it is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("hsimhash.contrib.scrapy", "scrapy", "scrapy"),
        ("hsimhash.serve", "starlette", "serve"),
        ("hsimhash.serve.app", "starlette", "serve"),
        ("hsimhash.spark", "pyspark", "spark"),
        ("hsimhash.spark.dedup", "pyspark", "spark"),
    ],
)
def test_an_import_without_its_extra_names_it(module: str, package: str, extra: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; import {module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: hsimhash.")
    assert last.endswith(f"pip install 'hsimhash[{extra}]'")

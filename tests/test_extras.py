"""Modules that need an extra name it if it is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hsimhash import extras
from hsimhash.extras import install_command


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
    assert last.endswith(install_command(extra))


ORIGINS = {
    '{"url": "file://FOLDER/my%20hsimhash", "dir_info": {"editable": true}}': "-e 'FOLDER/my hsimhash[html]'",
    '{"url": "file://FOLDER/my%20hsimhash", "dir_info": {}}': "'FOLDER/my hsimhash[html]'",
    '{"url": "file://FOLDER/gone", "dir_info": {}}': "'hsimhash[html]'",
    '{"url": "https://example.org/h", "vcs_info": {"vcs": "git", "commit_id": "1f"}}': (
        "'hsimhash[html] @ git+https://example.org/h@1f'"
    ),
    '{"url": "https://example.org/hsimhash.whl"}': "'hsimhash[html]'",
}


@pytest.mark.every_case
@pytest.mark.parametrize("found", ORIGINS)
def test_an_extra_is_installed_from_where_hsimhash_was(
    found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "hsimhash-1.dist-info"
    folder.mkdir()
    (tmp_path / "my hsimhash").mkdir()
    (folder / "METADATA").write_text("Name: hsimhash\nVersion: 1\n")
    (folder / "direct_url.json").write_text(found.replace("FOLDER", str(tmp_path)))
    monkeypatch.syspath_prepend(str(tmp_path))
    extras._origin.cache_clear()
    assert install_command("html") == f"pip install {ORIGINS[found].replace('FOLDER', str(tmp_path))}"
    extras._origin.cache_clear()

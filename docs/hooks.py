"""Add the README, `schema/` and the settings file to the documentation site, and point links to them at its pages.

On GitHub, the same links lead to the files.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

TOP = Path(__file__).parents[1]
PAGES = TOP / "docs" / "pages"
FORMATS = "reference/formats"
_LINK = re.compile(r"\[([^\[\]]*)\]\(([^()\s:]+)\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def source_of(uri: str) -> Path:
    """Return the file from which a page of the site is made."""
    if uri == "index.md":
        return TOP / "README.md"
    return TOP / "schema" / Path(uri).name if uri.startswith(FORMATS) else PAGES / uri


def on_files(files: Files, config: Any) -> Files:
    """Add the README and the pages of `schema/`."""
    formats = {f"{FORMATS}/{path.name}": path for path in sorted((TOP / "schema").glob("*.md"))}
    for uri, path in {"index.md": TOP / "README.md", **formats}.items():
        files.append(File.generated(config, uri, content=path.read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links to files in the repository into links within the site, or into plain names."""
    uri = page.file.src_uri
    if uri == "reference/settings.md":
        markdown += f"```yaml\n{(TOP / 'conf' / 'hsimhash.yaml').read_text(encoding='utf-8')}```\n"
    here = source_of(uri).parent

    def placed(found: re.Match[str]) -> str:
        words, target = found[1], found[2]
        path, mark, anchor = target.partition("#")
        if not path:
            return found[0]
        aim = Path(os.path.normpath(here / path))
        if aim.is_relative_to(PAGES):
            new = aim.relative_to(PAGES).as_posix()
        elif aim.parent == TOP / "schema" and aim.suffix == ".md":
            new = f"{FORMATS}/{aim.name}"
        elif aim == TOP / "README.md":
            new = "index.md"
        else:
            return words if words.startswith("`") else f"{words} (`{aim.relative_to(TOP).as_posix()}`)"
        return f"[{words}]({os.path.relpath(new, Path(uri).parent)}{mark}{anchor})"

    return "".join(
        part if number % 2 else _LINK.sub(placed, part) for number, part in enumerate(_FENCE.split(markdown))
    )

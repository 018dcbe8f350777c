"""Print README.md for a package index, where relative links lead nowhere: `python -m docs.package_page`."""

from __future__ import annotations

import re
from pathlib import Path

import click

from hsimhash import __version__

RELATIVE_LINK = re.compile(r"(!?\[[^]]*\]\()(?!https?:|#)([^)]+\))")
REPOSITORY, RELEASE = "hsimhash/hsimhash", f"v{__version__}"


def page() -> str:
    """Return the page with links to the files of this release."""

    def absolute(link: re.Match[str]) -> str:
        label, path = link.groups()
        folder = "raw" if label.startswith("!") else "blob"
        return f"{label}https://github.com/{REPOSITORY}/{folder}/{RELEASE}/{path}"

    return RELATIVE_LINK.sub(absolute, Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    click.echo(page(), nl=False)

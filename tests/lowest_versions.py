"""Print the lowest versions that `pyproject.toml` allows, as constraints for pip: `python -m tests.lowest_versions`.

`make test` with them: `PIP_CONSTRAINT=lowest.txt make VENV=.venv-lowest test`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

EXTRAS = ("parquet", "warc", "remote", "html", "serve", "metrics", "scrapy", "hashes")


def lowest(requirement: Requirement) -> str:
    """Return the constraint for a requirement; empty if it does not have a lower bound."""
    bounds = [one.version for one in requirement.specifier if one.operator in (">=", "==")]
    return f"{requirement.name}=={bounds[0]}" if bounds else ""


def main() -> None:
    project = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = [*project["dependencies"], *(one for extra in EXTRAS for one in project["optional-dependencies"][extra])]
    print("\n".join(sorted({lowest(Requirement(one)) for one in listed} - {""})))


if __name__ == "__main__":
    main()

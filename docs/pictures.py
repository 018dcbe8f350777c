"""Draw the pictures of the documentation: `python docs/pictures.py`. Needs Chromium.

The plot of F1 against cost is drawn by `tests/bench/bench_quality.py`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

from hsimhash import Layout

TOP = Path(__file__).parents[1]
IMAGES = TOP / "docs" / "pages" / "images"
SCHEMES = {"light": 1, "dark": 0}  # Chromium's numbers for the colour schemes
WIDTH, TERMINAL_WIDTH = 1100, 96
LAYOUT = Layout.named("4")
BLOCKS, BLOCK_BITS = len(LAYOUT.drawers), 64 // len(LAYOUT.drawers)
DRAWN_AS_OF = 1_767_225_600  # modification time of the input, which the page shows
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2")
NEAR = 2  # the block in which the two fingerprints of the drawing differ


def run(*command: str, folder: Path, **variables: str) -> str:
    """Run a command in a folder and return its output."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


def photograph(page: Path, name: str, height: int) -> None:
    """Save a light and a dark screenshot of the top of a page."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        sys.exit("pictures of pages need Chromium: apt-get install chromium, or dnf install chromium")
    for scheme, number in SCHEMES.items():
        options = (
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--window-size={WIDTH},{height}",
        )
        colours = f"--blink-settings=preferredColorScheme={number}"
        picture = f"--screenshot={IMAGES / f'{name}-{scheme}.png'}"
        subprocess.run([browser, *options, colours, picture, page.as_uri()], capture_output=True, check=True)


def draw_terminal(printed: str, name: str, title: str) -> None:
    """Draw the output of a command, with its colours."""
    console = Console(record=True, width=TERMINAL_WIDTH, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(printed))
    drawn = console.export_svg(title=title)
    drawn = re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)  # would be fetched from the web
    (IMAGES / f"{name}.svg").write_text(drawn, encoding="utf-8")


def block(x: int, y: int, number: int, label: str, *, differs: bool = False) -> str:
    """Draw a block of a fingerprint."""
    cross = f'<path d="M{x + 96} {y + 8}l12 12m0-12l-12 12" stroke="#fff" stroke-width="2"/>' if differs else ""
    box = f'<rect x="{x}" y="{y}" width="116" height="28" rx="4" fill="{COLOURS[number]}"/>'
    return f'{box}<text x="{x + 48}" y="{y + 19}" fill="#fff">{label}</text>{cross}'


def drawers() -> Iterator[str]:
    """Draw how layout 4 files a fingerprint, and in which drawers a query for a near fingerprint finds it."""
    yield '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 330" font-family="sans-serif" font-size="13">'
    yield "<style>text{text-anchor:middle}.left{text-anchor:start}</style>"
    yield '<rect width="880" height="330" fill="#fff" rx="6"/>'
    names = [f"bits {64 - BLOCK_BITS * at - 1}–{64 - BLOCK_BITS * (at + 1)}" for at in range(BLOCKS)]
    yield '<text x="20" y="39" class="left">fingerprint</text>'
    yield from (block(130 + 122 * at, 20, at, names[at]) for at in range(BLOCKS))
    yield '<text x="20" y="83" class="left">near query</text>'
    yield from (block(130 + 122 * at, 64, at, names[at], differs=at == NEAR) for at in range(BLOCKS))
    yield '<path d="M20 112H860" stroke="#ccc"/>'
    yield '<text x="188" y="134" fill="#555">segment</text><text x="432" y="134" fill="#555">the other bits</text>'
    for drawer in range(BLOCKS):
        y = 146 + 44 * drawer
        yield f'<text x="20" y="{y + 19}" class="left">drawer {drawer + 1}</text>'
        order = [drawer, *(at for at in range(BLOCKS) if at != drawer)]
        yield from (block(130 + 122 * place, y, at, names[at], differs=at == NEAR) for place, at in enumerate(order))
        meets = "different segments: not found here" if drawer == NEAR else "equal segments: found here"
        yield f'<text x="630" y="{y + 19}" class="left" fill="#333">{meets}</text>'
    yield "</svg>"


def main() -> None:
    """Draw all pictures."""
    IMAGES.joinpath("drawers.svg").write_text("\n".join(drawers()) + "\n", encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tutorial = (TOP / "docs" / "pages" / "tutorials" / "folder.md").read_text(encoding="utf-8")
        for commands in re.findall(r"^```sh\n(.*?)^```", tutorial, re.MULTILINE | re.DOTALL)[:2]:
            run("bash", "-euc", commands, folder=folder)
        photograph(folder / "found" / "report.html", "report", 1000)
        two = ("notes/ferry-draft.txt", "notes/ferry-final.txt")
        shown = run("hsimhash", "explain", *two, folder=folder, FORCE_COLOR="1", COLUMNS=str(TERMINAL_WIDTH))
        draw_terminal(shown, "explain", f"hsimhash explain {' '.join(two)}")
        shutil.copy(TOP / "hsimhash" / "sample" / "documents.jsonl", folder / "pages.jsonl")
        os.utime(folder / "pages.jsonl", (DRAWN_AS_OF, DRAWN_AS_OF))
        run("hsimhash", "calibrate", "pages.jsonl", "--report", "calibration.html", folder=folder)
        photograph(folder / "calibration.html", "calibration", 1270)


if __name__ == "__main__":
    main()

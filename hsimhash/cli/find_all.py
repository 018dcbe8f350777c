"""`hsimhash find-all`: all pairs of near fingerprints, as simhash-cpp's program prints them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from hsimhash.cli.pair_files import Finder, PeerCommand, run_finder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PURPOSE = """\
Find all pairs within DISTANCE bits of each other; write each as a line, [206, 238], the lower number first."""
EXAMPLE = r"printf '255\n239\n51\n' | hsimhash find-all --blocks 4 --distance 3"


@click.command("find-all", cls=PeerCommand, add_help_option=False)
@click.pass_context
def find_all_command(ctx: click.Context, arguments: tuple[str, ...]) -> int:
    """Find all pairs, as simhash-find-all does."""
    finder = Finder(PURPOSE, EXAMPLE, blocks_must_be=">=", computing="matches", writing="matches", lines_of=_lines)
    return run_finder(ctx.command_path, arguments, finder)


def _lines(fingerprints: NDArray[np.uint64], distance: int) -> Iterator[bytes]:
    import numpy as np

    from hsimhash.pairs import iter_pairs  # here: numpy would slow down --help
    from hsimhash.pairs.numbers import list_lines

    for block in iter_pairs(fingerprints, max_distance=distance):
        left, right = fingerprints[block.left], fingerprints[block.right]
        pairs = np.stack([np.minimum(left, right), np.maximum(left, right)], axis=-1)
        yield from list_lines(pairs.ravel(), np.arange(pairs.size) % 2 == 0)

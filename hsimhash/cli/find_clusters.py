"""`hsimhash find-clusters`: the connected components of near fingerprints, as simhash-cpp's program prints them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import click

from hsimhash.cli.pair_files import Finder, PeerCommand, run_finder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PURPOSE = """\
Join all fingerprints within DISTANCE bits of each other, step by step; write each cluster of two or more as a line,
[255, 239, 238, 206], in order of the input."""
EXAMPLE = r"printf '255\n239\n238\n51\n' | hsimhash find-clusters --blocks 4 --distance 3"


@click.command("find-clusters", cls=PeerCommand, add_help_option=False)
@click.pass_context
def find_clusters_command(ctx: click.Context, arguments: tuple[str, ...]) -> int:
    """Find all clusters, as simhash-find-clusters does."""
    finder = Finder(PURPOSE, EXAMPLE, blocks_must_be=">", computing="clusters", writing="results", lines_of=_lines)
    return run_finder(ctx.command_path, arguments, finder)


def _lines(fingerprints: NDArray[np.uint64], distance: int) -> Iterator[bytes]:
    import numpy as np

    from hsimhash.pairs import group_equal, iter_pairs  # here: numpy would slow down --help
    from hsimhash.pairs.clusters import linked
    from hsimhash.pairs.numbers import list_lines

    positions = np.arange(len(fingerprints))
    members = np.flatnonzero(group_equal(fingerprints) == positions)
    with closing(iter_pairs(fingerprints, max_distance=distance)) as blocks:
        cluster = linked(blocks, len(fingerprints))
    sizes = np.bincount(cluster[members], minlength=len(positions))
    members = members[sizes[cluster[members]] > 1]
    members = members[np.argsort(cluster[members], kind="stable")]
    yield from list_lines(fingerprints[members], cluster[members] == members)

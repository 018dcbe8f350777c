"""What a check of a store counts and reports, on every kind of store; each store gives the pages, and deletes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

MOST_EXAMPLES = 20

Progress = Callable[[int, int], None]  # done, total


@dataclass(slots=True)
class CheckReport:
    """What `check` has found, counted up while it runs.

    Problems are registers that lack rows, and rows whose key does not recompute. Leftovers, from an interrupted write,
    are harmless. `repaired` counts the problems repaired and leftovers deleted; `examples` are the first few of both.
    """

    documents: int = 0
    drawer_rows: int = 0
    problems: int = 0
    leftovers: int = 0
    repaired: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether there was no problem."""
        return self.problems == 0

    def problem(self, text: str) -> None:
        """Count a problem."""
        self.problems += 1
        self._add_example(text)

    def leftover(self, text: str) -> None:
        """Count a leftover."""
        self.leftovers += 1
        self._add_example(f"leftover: {text}")

    def _add_example(self, text: str) -> None:
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append(text)

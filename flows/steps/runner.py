"""How the steps of a recipe are run: here one after the other; under Prefect each as a task of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tilewatch.infra.archive import Archive, open_archive
from tilewatch.infra.settings import Settings

T = TypeVar("T")


class Runner:
    """Runs every step at once, in this process, and leaves nothing but what the step itself stores.

    A recipe is a function of a runner, so that a verb and a flow of one name are the same recipe. ``label``
    names the single step where a recipe takes the same one several times.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def repeatable(self, name: str, work: Callable[[Archive], T], label: str = "") -> T:
        """What ``work`` gives: a step that stores the same thing again without doubling it."""
        with open_archive(self.settings) as archive:
            return work(archive)

    def once(self, name: str, work: Callable[[], T], label: str = "") -> T:
        """What ``work`` gives: a step that is never repeated by itself, since it measures."""
        return work()

    def leave_table(self, key: str, rows: Sequence[dict[str, Any]], description: str) -> None:
        """Show ``rows`` to whoever watches the run; nobody does here."""

    def leave_link(self, key: str, page: Path, text: str) -> None:
        """Show where a page is to whoever watches the run; nobody does here."""

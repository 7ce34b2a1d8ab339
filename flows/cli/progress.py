"""Live progress on a terminal, with the time left; plain lines where there is no terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from tilewatch.flows.cli.output import err, warn
from tilewatch.infra.progress import listening


class TerminalListener:
    """Shows each stage as a bar."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._task: TaskID | None = None
        self._live = err.is_terminal

    def stage(self, name: str, total: int) -> None:
        """Begin the bar of a stage; the bar before it stays as it ended."""
        self._task = self._bars.add_task(name, total=total, detail="")
        if not self._live:
            err.print(f"{name}: {total} steps")

    def advance(self, detail: str, steps: float = 1.0) -> None:
        """Move the bar of the present stage."""
        if self._task is not None:
            self._bars.update(self._task, advance=steps, detail=detail)

    def note(self, message: str) -> None:
        """Print the message above the bars."""
        warn(message)


@contextmanager
def shown() -> Iterator[None]:
    """Show progress on stderr for the block."""
    columns = (
        TextColumn("[bold]{task.description:>22}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[detail]}"),
    )
    bars = Progress(*columns, console=err, disable=not err.is_terminal)
    with bars, listening(TerminalListener(bars)):
        yield

"""The steps of a recipe as Prefect tasks: seen one by one, and retried where that is safe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from prefect import task
from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from tilewatch.flows.retries import SAFE_TO_REPEAT
from tilewatch.flows.steps.runner import Runner
from tilewatch.infra.archive import Archive

T = TypeVar("T")


class PrefectRunner(Runner):
    """Makes every step a task of the flow run that it is called in; tables and links become artifacts."""

    def repeatable(self, name: str, work: Callable[[Archive], T], label: str = "") -> T:
        """What ``work`` gives; retried after failures that time can mend, each time with the archive anew."""

        def step() -> T:
            return super(PrefectRunner, self).repeatable(name, work)

        return task(name=name, task_run_name=label or name, **SAFE_TO_REPEAT)(step)()

    def once(self, name: str, work: Callable[[], T], label: str = "") -> T:
        """What ``work`` gives; a failure is that of the flow run."""

        def step() -> T:
            return work()

        return task(name=name, task_run_name=label or name, cache_policy=NO_CACHE)(step)()

    def leave_table(self, key: str, rows: Sequence[dict[str, Any]], description: str) -> None:
        """Leave ``rows`` as an artifact."""
        create_table_artifact(list(rows), key=key, description=description)

    def leave_link(self, key: str, page: Path, text: str) -> None:
        """Leave the address of ``page`` as an artifact."""
        create_link_artifact(page.as_uri(), key=key, link_text=text)

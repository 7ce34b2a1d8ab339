"""The device worker overrides private names of Prefect: the installed version must have them."""

from __future__ import annotations

import importlib.metadata
import inspect
import re
from pathlib import Path

import pytest
from prefect.workers.base import BaseWorker
from prefect.workers.process import ProcessWorker

from tilewatch.flows.agents.worker import DeviceWorker

OVERRIDDEN = (
    "_propose_crashed_state", "_propose_pending_state", "get_and_submit_flow_runs", "run", "setup",
)  # fmt: skip


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_what_the_device_worker_overrides_is_there_and_takes_the_same(name: str) -> None:
    assert name in vars(DeviceWorker), f"{name} is overridden no more; take it off this list"
    theirs = inspect.signature(getattr(ProcessWorker, name)).parameters
    ours = inspect.signature(getattr(DeviceWorker, name)).parameters
    assert list(ours) == list(theirs)
    assert inspect.iscoroutinefunction(getattr(ProcessWorker, name))


def test_nothing_else_of_prefect_is_overridden() -> None:
    inherited = {name for base in ProcessWorker.__mro__ for name in vars(base)}
    own = {n for n, made in vars(DeviceWorker).items() if n[:2] != "__" and inspect.isfunction(made)}
    assert own & inherited == set(OVERRIDDEN)


def test_the_private_fields_that_the_device_worker_reads_are_there() -> None:
    source = inspect.getsource(BaseWorker)
    for name in ("_submitting_flow_run_ids", "_limiter", "_logger"):
        assert re.search(rf"self\.{name}\b", source), name


def test_prefect_has_a_ceiling_below_the_next_minor_version() -> None:
    major, minor, *_ = importlib.metadata.version("prefect").split(".")
    pyproject = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'"prefect>=3.9.1,<{major}.{int(minor) + 1}"' in pyproject

"""Where the experiment files are, and the experiments of this site by letter."""

from __future__ import annotations

from pathlib import Path

from tilewatch.infra.settings import Settings
from tilewatch.tasks.plan.experiment import Experiment, load_experiments
from tilewatch.tasks.plan.serving import ServingExperiment, load_serving_experiments

SHIPPED = Path(__file__).parent
"""Folder of the experiment files that ship with tilewatch."""


def experiments(settings: Settings) -> dict[str, Experiment]:
    """The operator experiments of this site by letter. Raises ExperimentError."""
    return load_experiments(settings.experiments or SHIPPED)


def serving_experiments(settings: Settings) -> dict[str, ServingExperiment]:
    """The serving experiments of this site by letter. Raises ExperimentError."""
    return load_serving_experiments(settings.experiments or SHIPPED)

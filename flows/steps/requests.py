"""Parameters of the flows, as a person sees them in a form: every field says what it does."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from tilewatch.tasks.measure.environment import BuildEnvironment
from tilewatch.tasks.plan.choices import DEFAULT_SOC, Agent, AnyPreset

Letter = Annotated[str, Field(pattern=r"^[A-Z]$")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}$")]
"""A run id or a label: it becomes part of a path or a key, so it is never a path itself."""
Block = Annotated[str, Field(pattern=r"^[A-Z]-[0-9]{1,9}$")]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SweepRequest(_Request):
    """What to measure, where and how much."""

    experiments: tuple[Letter, ...] = Field(
        ("A", "B", "C", "D"),
        min_length=1,
        description="Experiments: A DynamicQuant, B QuantMatmul, C weight format, D GroupedMatmul, E serving",
    )
    preset: AnyPreset = Field(
        "quick",
        description="How much is measured: smoke for a look, quick for minutes, full for evidence; "
        "reference_ci is the reference CI's operating point of experiment E",
    )
    agent: Agent = Field(
        "cpu",
        description="What executes: cpu is this machine's reference kernels, npu a device through torch_npu",
    )
    build: Name | None = Field(
        None,
        description="Label of the build under test; without it a label is made from its components",
    )
    resume: Name | None = Field(
        None, description="Run id of an interrupted run: what is missing is measured, the rest is as it was"
    )
    seed: int = Field(0, ge=0, description="Seed of order and inputs; 0 takes one from the clock")
    processes: int | None = Field(
        None, ge=2, le=100, description="Processes per arm, where the preset's number is not wanted"
    )
    axis: str | None = Field(None, description="A named list of axis values, for example decode or prefill")
    point: str | None = Field(None, description="Measure this point alone, by its point_id")
    arm: str | None = Field(None, description="Measure this arm alone")
    refine: tuple[str, ...] = Field(
        (), description="CANN versions: adds both sides of every predicted tiling boundary to the axis"
    )
    soc: str = Field(DEFAULT_SOC, description="SoC that the boundaries are predicted for")
    environments: tuple[BuildEnvironment, ...] = Field(
        (),
        description="Builds that lie side by side on the host, each by label, set_env, python, library_path: "
        "several are arms of one ABBA sweep, the first is the baseline; empty: the worker's own",
    )
    command: str = Field("", description="The command that asked for it, recorded with the run")
    devices: tuple[str, ...] = Field(
        (),
        description="Work queues of devices that share the work, whole ABBA blocks each; empty: this device",
    )
    patience_s: float = Field(
        900, gt=0, description="Seconds without a finished block until a device's work goes to another one"
    )

    @property
    def title(self) -> str:
        """What the flow run is called."""
        return f"{self.resume or ' '.join(self.experiments)} {self.preset}"


class PartRequest(_Request):
    """A device's share of a run that several devices measure; made by the sweep, not by hand."""

    run_id: Name = Field(description="Run whose blocks are measured")
    blocks: tuple[Block, ...] = Field(min_length=1, description="Blocks as LETTER-NUMBER, for example B-3")
    queue: Name = Field(description="Work queue of the device, recorded with what it measured")
    build: Name | None = Field(None, description="Label of the build, where it must be chosen")
    soc: str = Field(DEFAULT_SOC, description="SoC of a simulated device")


class CompareRequest(_Request):
    """Two builds, or a build and a run: which is slower, and by how much."""

    baseline: str = Field(description="Build label or run id of the baseline")
    candidate: str = Field(description="Build label or run id of the candidate")
    second_lease: str | None = Field(
        None, description="Run id of the candidate measured again, to confirm regressions"
    )
    overrides: tuple[str, ...] = Field(
        (), description="Keys whose difference is to be ignored; recorded on every row they would refuse"
    )


class RegressionRequest(_Request):
    """A sweep, then its comparison with a baseline."""

    sweep: SweepRequest = Field(description="What to measure")
    baseline: str = Field(
        "@baseline", description="Build label or run id to compare with; @baseline is the approved one"
    )
    overrides: tuple[str, ...] = Field((), description="Keys whose difference is to be ignored")


class UpgradeRequest(_Request):
    """What is to be done when the build on a device has changed."""

    sweep: SweepRequest = Field(description="What to measure on the new build")
    old_build_id: str = Field("", description="Hash of the build before; where it is not known, empty")
    new_build_id: str = Field(
        "", description="Hash of the new build; the run refuses another one. Empty takes the present one"
    )
    old_cann: str = Field(
        "", description="CANN version before, to predict what changes; empty predicts nothing"
    )
    new_cann: str = Field(
        "", description="CANN version after, to predict what changes; empty predicts nothing"
    )
    baseline: str = Field(
        "@baseline",
        description="What to compare with: the approved build, or where none is armed the newest runs of the "
        "build before; or a build label or run id",
    )


class IngestRequest(_Request):
    """Existing profiler output, logs or serving results to be stored and read."""

    paths: tuple[str, ...] = Field(
        min_length=1, description="Folders, files or archives (.tar.gz, .zip) on the host of the device"
    )
    build: str | None = Field(
        None, description="Label of the build, where the files do not say it; without it: unknown"
    )


class ReanalyseRequest(_Request):
    """Archived runs to be rebuilt from raw with the present code."""

    runs: tuple[Name, ...] = Field(min_length=1, description="Run ids, as `tilewatch runs` lists them")
    comparisons: bool = Field(
        True, description="Also judge every published comparison again that rests on one of the runs"
    )

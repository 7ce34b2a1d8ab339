"""The document of one run: what was asked, on which build and device, and the plan of every experiment.

Written once at the start of a run, into the local spool and beside the raw captures, so that a run can be
resumed and every table rebuilt from raw.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tilewatch.data_contracts.errors import TilewatchError
from tilewatch.tasks.plan.plan import Plan, Process
from tilewatch.tasks.plan.serving_plan import Client, Launch, ServingPlan

SCHEMA_VERSION = 1
_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}")
FEWEST_PROCESSES = 2
"""What a run measures at least; a document made by hand may plan fewer."""


class RunDocumentError(TilewatchError):
    """A run document that cannot be read; the message names the file."""


@dataclass(frozen=True)
class RunDocument:
    """Everything that stays the same for all processes of a run. Times are Unix ns.

    ``plans`` are those of operator experiments, ``serving`` those of serving ones, by letter; ``method`` is
    that of the operators. ``selection`` holds the options that chose the axis values, as on the command line
    with a blank behind. ``environment`` is what its processes are started under (``BuildEnvironment.facts``),
    empty for the worker's own; ``beside`` are all runs measured in one ABBA sweep, this one included, in
    order: one a build.
    """

    run_id: str
    started_ns: int
    command: str
    agent: str
    evidence: str
    preset: str
    seed: int
    build: str
    build_id: str
    components: Mapping[str, str]
    host: str
    device: str
    device_class: str
    method: Mapping[str, Any]
    method_hash: str
    plans: Mapping[str, Plan]
    selection: str = ""
    serving: Mapping[str, ServingPlan] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    beside: tuple[str, ...] = ()

    @property
    def experiments(self) -> tuple[str, ...]:
        """Letters of all experiments of the run: operators, then serving."""
        return (*self.plans, *self.serving)

    @property
    def method_version(self) -> int:
        """METHOD_VERSION of the measuring program."""
        return int(self.method["method_version"])

    def point_command(self, experiment: str, arm: str, point_id: str) -> str:
        """The command that measures one point of one arm again: same build, method, order and amount.

        The build is named by label, which a later run refuses where it finds another build, or by the
        environment that it was started under (then in ``selection``).
        """
        plan = self.plans[experiment]
        timed = [p for p in plan.processes if (p.arm, p.role, p.kind) == (arm, "main", "timing")]
        words = ["tilewatch", "run", experiment, "--preset", self.preset, "--agent", self.agent]
        words += [] if self.environment else ["--build", self.build]
        words += ["--seed", str(self.seed), "--processes", str(max(len(timed), FEWEST_PROCESSES))]
        last = ["--point", point_id, "--arm", arm]
        return f"{shlex.join(words)} {self.selection}{shlex.join(last)}"

    def to_json(self) -> bytes:
        """The document as JSON, the same bytes for the same document."""
        body = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        return json.dumps(body, sort_keys=True, ensure_ascii=False, indent=1).encode() + b"\n"


def read_run_document(data: bytes, name: str | Path = "run.json") -> RunDocument:
    """Inverse of ``RunDocument.to_json``. Raises RunDocumentError naming ``name``."""
    try:
        body = json.loads(data)
        if body.pop("schema_version") != SCHEMA_VERSION:
            raise RunDocumentError(f"{name}: schema_version is not {SCHEMA_VERSION}")
        plans = {letter: _plan(raw) for letter, raw in body.pop("plans").items()}
        serving = {letter: _serving_plan(raw) for letter, raw in body.pop("serving", {}).items()}
        beside = tuple(body.pop("beside", ()))
        found = RunDocument(plans=plans, serving=serving, beside=beside, **body)
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise RunDocumentError(f"{name}: not a run document: {error}") from error
    for part in _folder_names(found):
        if not _FOLDER_NAME.fullmatch(part):
            raise RunDocumentError(f"{name}: {part!r} cannot be the name of a folder")
    return found


def _folder_names(document: RunDocument) -> Iterator[str]:
    """What becomes a part of a path in the spool: a document from elsewhere must not lead out of it."""
    yield from (document.run_id, *document.beside, *document.experiments)
    for plan in document.plans.values():
        yield from (process.name for process in plan.processes)
    for serving in document.serving.values():
        yield from (launch.name for launch in serving.launches)


def _plan(raw: dict[str, Any]) -> Plan:
    return Plan(
        **{
            **raw,
            "points": {arm: tuple(points) for arm, points in raw["points"].items()},
            "control": {arm: tuple(ids) for arm, ids in raw["control"].items()},
            "processes": tuple(
                Process(**{**process, "points": tuple(process["points"])}) for process in raw["processes"]
            ),
        }
    )


def _serving_plan(raw: dict[str, Any]) -> ServingPlan:
    return ServingPlan(
        **{
            **raw,
            "client": Client(**raw["client"]),
            "gates": tuple(raw["gates"]),
            "order": tuple(raw["order"]),
            "launches": tuple(Launch(**launch) for launch in raw["launches"]),
        }
    )

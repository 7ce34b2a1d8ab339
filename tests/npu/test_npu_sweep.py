"""`tilewatch run A B C D --agent npu`, once, from plan to report on the real torch_npu over the software NPU.

The four experiments keep their shapes and operators; one value of each axis is measured. All tests but the
last two look at what that one run left.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tilewatch.infra.archive import Archive, open_archive
from tilewatch.infra.settings import Settings
from tilewatch.tasks.plan.experiment import load_experiments
from tilewatch.tasks.plan.plan import Plan, Request, make_plan

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TILEWATCH = Path(sys.executable).parent / "tilewatch"
SMALL = {"processes": 2, "samples": 3, "max_point_ms": 40, "control_arms": 0}
KEPT = {
    "dynamic_quant": (["standalone"], {"axis": [16], "linears": ["wq_a"], "counters": False}),
    "quant_matmul": (["standalone", "bf16"], {"axis": [16], "linears": ["wq_a"], "counters": False}),
    "weight_format": (["nz", "nd"], {"axis": [16], "linears": ["wq_a"]}),
    "grouped_matmul": (["int8", "int8_hint"], {
        "axis": [2], "linears": ["w2"], "group_shapes": ["uniform"], "allocation_regimes": ["exact"],
        "counters": False,
    }),
}  # fmt: skip


@pytest.fixture(scope="module")
def experiments(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The experiments A to D with a preset of one point an arm; test_npu_agent has the other arms."""
    folder = tmp_path_factory.mktemp("experiments")
    for name, (arms, kept) in KEPT.items():
        body = yaml.safe_load((repository / f"flows/experiments/{name}.yaml").read_text())
        body["presets"] = {"smoke": SMALL | kept}
        body["arms"] = [arm for arm in body["arms"] if arm["name"] in arms]
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(body))
    return folder


@pytest.fixture(scope="module")
def plans(experiments: Path) -> dict[str, Plan]:
    """The plan of every experiment for the npu agent."""
    found = load_experiments(experiments)
    return {letter: make_plan(e, Request("smoke", "npu", 1)) for letter, e in found.items()}


@dataclass(frozen=True)
class Site:
    """A home of its own with an archive that stays open, and a user who types commands there."""

    environment: Mapping[str, str]
    archive: Archive

    def run(self, *words: str, code: int = 0, **variables: str) -> str:
        """Run `tilewatch` to its end and return its stdout; CANN comes by ``variables`` or a set_env.sh."""
        command = [str(TILEWATCH), *words]
        done = subprocess.run(command, env={**self.environment, **variables}, capture_output=True, text=True)
        assert done.returncode == code, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """What the archive answers."""
        answer: list[dict[str, Any]] = self.archive.tables.query(sql).to_pylist()
        return answer


@pytest.fixture(scope="module")
def site(
    experiments: Path, plans: dict[str, Plan], npu_python: Path, software_tilings: Callable[..., None],
    prefect_server: str, tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:  # fmt: skip
    """An empty site that measures with torch_npu and knows the predicted tilings of the plans."""
    home = tmp_path_factory.mktemp("home")
    points = [point for plan in plans.values() for arm in plan.points.values() for point in arm]
    software_tilings(points, home / "tilings.tsv")
    environment = {
        **os.environ, "SOFTWARE_NPU_ROWS": "1", "PREFECT_API_URL": prefect_server,
        "SOFTWARE_NPU_TILINGS": str(home / "tilings.tsv"), "TILEWATCH_HOME": str(home / "tilewatch"),
        "TILEWATCH_LOCK_FOLDER": str(home / "locks"), "TILEWATCH_MEASURE_PYTHON": str(npu_python),
        "TILEWATCH_EXPERIMENTS": str(experiments),
    }  # fmt: skip
    with open_archive(Settings(home=home / "tilewatch", lock_folder=home / "locks")) as archive:
        yield Site(environment, archive)


@pytest.fixture(scope="module")
def swept(site: Site, software_npu: Mapping[str, str]) -> Site:
    """The site after one run of A to D, build ``whole``."""
    words = ("run", "A", "B", "C", "D", "--agent", "npu", "--preset", "smoke", "--build", "whole")
    assert "report.html" in site.run(*words, **software_npu)
    return site


def test_experiments_a_to_d_run_from_plan_to_report(swept: Site, plans: dict[str, Plan]) -> None:
    runs = swept.rows("select experiment, status, evidence, missing_points, quarantined_rows from runs")
    assert sorted(row.pop("experiment") for row in runs) == sorted(plans)
    complete = {"status": "complete", "evidence": "simulated", "missing_points": 0, "quarantined_rows": 0}
    assert runs == [complete] * 4
    assert swept.rows("select experiment, arm, reason from alignments where status <> 'aligned'") == []
    lost = "select * from alignments where kernel_count <> expected_kernel_count or kernel_count = 0"
    assert swept.rows(lost) == []


def test_every_timing_capture_holds_kernels_of_torch_npu_and_every_tiling_capture_a_log(swept: Site) -> None:
    found = swept.rows(
        "select kind, count(*) as captures, "
        + ", ".join(
            f"count(*) filter (where capture_id in (select capture_id from {table})) as {table}"
            for table in ("kernels", "tilings", "samples")
        )
        + " from captures group by 1 order by 1",
    )
    shown = {row.pop("kind"): tuple(row.values()) for row in found}
    assert shown == {"counters": (2, 2, 0, 0), "tiling": (7, 0, 7, 0), "timing": (14, 14, 0, 14)}


def test_arm_c_is_proved_in_the_table_and_explained_by_its_own_tiling(swept: Site) -> None:
    found = swept.rows(
        "select p.arm, p.weight_format, p.dispatched_operator, p.evidence, a.kernel_weight_format, "
        "a.tiling_key, a.base_n from points p join alignments a using (run_id, arm, point_id) "
        "where p.experiment = 'C' order by p.arm",
    )
    common = {"evidence": "simulated", "tiling_key": "24", "base_n": 64}
    assert found == [
        {
            "arm": arm,
            "weight_format": layout,
            "dispatched_operator": operator,
            "kernel_weight_format": layout,
            **common,
        }
        for arm, layout, operator in (
            ("nd", "ND", "aclnnQuantMatmulV5"),
            ("nz", "FRACTAL_NZ", "aclnnQuantMatmulWeightNz"),
        )
    ]


def test_kernels_under_counters_are_joined_by_point_and_are_never_the_ones_that_are_timed(
    swept: Site,
) -> None:
    found = swept.rows(
        "select p.arm, count(*) filter (where c.kind = 'counters') as counted, "
        "count(*) filter (where c.kind = 'timing') as timed, any_value(a.kernel_count) as aligned "
        "from points p join kernels k using (run_id, arm, point_id) join captures c using (capture_id) "
        "join alignments a using (run_id, arm, point_id) where p.experiment = 'C' group by 1 order by 1",
    )
    assert [(row["arm"], row["counted"] > 0, row["timed"] == row["aligned"]) for row in found] == [
        ("nd", True, True), ("nz", True, True),
    ]  # fmt: skip


def test_the_hint_arm_is_aligned_since_its_log_shows_the_hint(swept: Site) -> None:
    saw = "select arm, max(tuning_config) as hint from tilings where experiment = 'D' group by 1 order by 1"
    assert [tuple(row.values()) for row in swept.rows(saw)] == [("int8", 0), ("int8_hint", 2)]


@pytest.fixture(scope="module")
def cann_trees(software_npu: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two installations of a CANN that differ in their version files, each with its set_env.sh."""
    scripts = {}
    for label, version in (("old", "8.5.0"), ("new", "9.0.0")):
        home = tmp_path_factory.mktemp(label)
        for package in ("opp", "runtime", "compiler"):  # torch_npu looks for them
            (home / package).mkdir()
        (home / "version.cfg").write_text(f"# version: 1.0\nruntime_running_version=[7.6.0:{version}]\n")
        (home / "ascend_toolkit_install.info").write_text(
            f"package_name=Ascend-cann-toolkit\nversion={version}\n"
        )
        scripts[label] = home / "set_env.sh"
        exports = {**software_npu, "ASCEND_HOME_PATH": str(home), "ASCEND_OPP_PATH": str(home / "opp")}
        scripts[label].write_text("".join(f"export {name}='{value}'\n" for name, value in exports.items()))
    return scripts


@pytest.mark.soak  # in the default suite tests/flows goes the same way on the cpu agent
def test_two_cann_trees_are_arms_of_one_sweep_each_process_under_its_own(
    site: Site, cann_trees: dict[str, Path]
) -> None:
    words = [word for label, script in cann_trees.items() for word in ("--environment", f"{label}={script}")]
    said = site.run("run", "A", "--agent", "npu", "--preset", "smoke", *words)
    assert "new against old: " in said
    captures = site.rows(
        "select build, kind, block, lease_id, environment['build.components.ascend_toolkit_install.info'] as "
        "toolkit from captures where build in ('old', 'new') order by started_ns",
    )
    assert len({row["lease_id"] for row in captures}) == 1
    assert {(row["build"], row["toolkit"]) for row in captures} == {("old", "8.5.0"), ("new", "9.0.0")}
    timing = [(row["build"], row["block"]) for row in captures if row["kind"] == "timing"]
    assert timing == [("old", 0), ("new", 0), ("new", 1), ("old", 1)]
    compared = site.rows("select changed_components, between_leases from comparisons")
    assert compared == [
        {
            "changed_components": [
                "ascend_toolkit_install.info: 8.5.0 -> 9.0.0",
                "version.cfg: 7.6.0:8.5.0 -> 7.6.0:9.0.0",
            ],
            "between_leases": False,
        }
    ]


@pytest.mark.soak
def test_without_internal_formats_arm_nz_is_reported_as_failed(
    site: Site, software_npu: Mapping[str, str]
) -> None:
    site.run(
        "run", "C", "--agent", "npu", "--preset", "smoke", "--arm", "nz", "--build", "ndonly", code=1,
        TILEWATCH_FORBID_INTERNAL_FORMAT="1", **software_npu,
    )  # fmt: skip
    (row,) = site.rows("select status, weight_format, status_reason from points where build = 'ndonly'")
    assert (row["status"], row["weight_format"]) == ("missing", None)
    assert "the weight stayed ND where FRACTAL_NZ was asked for" in row["status_reason"]

"""Sweep a planned run: measure what it lacks, archive the captures, store the tables, publish the report."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tilewatch.flows.steps.launch import launch_row, launch_server, present
from tilewatch.flows.steps.measure import batches_together, measure_batch
from tilewatch.flows.steps.report import SweepReport, report_run
from tilewatch.flows.steps.runner import Runner
from tilewatch.flows.steps.tabulate import Tabulated, tabulate_run
from tilewatch.infra import progress
from tilewatch.infra.archive import Archive
from tilewatch.infra.counts import counts_of
from tilewatch.infra.lease import leased
from tilewatch.infra.raw_zone import archive_run
from tilewatch.infra.spool import RunFolder


def sweep_runs(runner: Runner, folders: Sequence[RunFolder]) -> list[SweepReport]:
    """Measure what ``folders`` lack on this device, then file each; one report a run, in order.

    Several folders are the same plan on several builds: their blocks interleave in ABBA order.
    """
    measure_runs(runner, folders)
    for folder in folders:
        launch_servers(runner, folder)
    return [publish_run(runner, store_run(runner, folder)) for folder in folders]


def measure_runs(runner: Runner, folders: Sequence[RunFolder]) -> None:
    """Measure the blocks of operators that ``folders`` lack, in one lease."""
    if not (todo := list(batches_together(folders))):
        return
    progress.current().stage("measure", sum(1 for folder in folders for _ in folder.remaining()))
    with leased(runner.settings, folders[0].document) as lease:
        for batch, folder in todo:
            work = partial(measure_batch, runner.settings, folder, batch, lease)
            runner.once("measure", work, f"measure {batch.experiment} block {batch.block}")


def launch_servers(runner: Runner, folder: RunFolder) -> int:
    """Launch the servers that the run lacks, one fresh one after the other, in one lease of their own.

    Returns how many completed. A launch that fails is a capture like any other, so a server that will not
    start is not started again and again; one that was interrupted has left none, and is the only one that
    is repeated.
    """
    settings, document = runner.settings, folder.document
    if not (todo := list(folder.remaining_launches())):
        return 0
    progress.current().stage("serve", len(todo))
    rows = []
    with leased(settings, document) as lease:
        found = present(settings, document)
        for letter, wanted in todo:
            work = partial(launch_server, settings, folder, letter, wanted, lease, found)
            rows.append(
                launch_row(letter, wanted, runner.once("launch", work, f"launch {letter} {wanted.name}"))
            )
    runner.leave_table("launches", rows, f"launches of run {document.run_id}")
    return sum(row["status"] == "complete" for row in rows)


def store_run(runner: Runner, folder: RunFolder) -> Tabulated:
    """Store every capture of the run, then read, align, validate and store its tables."""
    stored = runner.repeatable("archive", lambda archive: archive_run(archive, folder))
    captures = {letter: [(path, ref.prefix) for path, ref in refs] for letter, refs in stored.items()}
    return runner.repeatable(
        "tabulate",
        lambda archive: tabulate_run(runner.settings, archive, folder.document, captures),
    )


def publish_run(runner: Runner, tabulated: Tabulated) -> SweepReport:
    """Analyse the stored run and publish its report."""

    def publish(archive: Archive) -> SweepReport:
        return report_run(runner.settings, archive, tabulated)

    report = runner.repeatable("publish", publish)
    runner.leave_table("sweep", report.summary.to_pylist(), report.sentence)
    runner.leave_link("sweep-report", report.path, f"report of {report.run_id}")
    counts = counts_of(tabulated.tables, runner.settings.spool_folder, report.run_id)
    rows = [{"what": name, "count": count} for name, count in counts.items()]
    runner.leave_table("counts", rows, f"run {report.run_id}")
    return report

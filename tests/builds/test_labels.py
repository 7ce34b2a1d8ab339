"""Archived captures of one label with different version files are named."""

from __future__ import annotations

import pyarrow as pa

from tilewatch.tasks.builds.labels import shared_labels


def captures(*rows: tuple[str, str, dict[str, str]]) -> pa.Table:
    environment = pa.map_(pa.string(), pa.string())
    return pa.table(
        {
            "build": [build for build, _, _ in rows],
            "run_id": [run for _, run, _ in rows],
            "environment": pa.array([list(entries.items()) for _, _, entries in rows], environment),
        }
    )


NAME = "version_files.opp/version.info"


def test_runs_of_one_label_whose_version_files_differ_are_told_with_the_line_that_differs() -> None:
    table = captures(
        ("nightly", "R1", {NAME: "Version=9.1.0\nversion_dir=9.1.0\n", "device.host": "a"}),
        ("nightly", "R2", {NAME: "Version=9.2.0\nversion_dir=9.1.0\n", "device.host": "b"}),
        ("nightly", "R2", {NAME: "Version=9.2.0\nversion_dir=9.1.0\n"}),
        ("other", "R3", {NAME: "Version=9.2.0\n"}),
    )
    (found,) = shared_labels(table)
    assert (found.build, found.file, found.runs) == ("nightly", "opp/version.info", (("R1",), ("R2",)))
    assert found.sentence == (
        "label nightly names more than one build: opp/version.info differs "
        "(R1 say Version=9.1.0; R2 say Version=9.2.0)"
    )


def test_runs_of_one_label_with_equal_version_files_are_one_build() -> None:
    same = {NAME: "Version=9.1.0\n"}
    assert shared_labels(captures(("a", "R1", same), ("a", "R2", same), ("b", "R3", {}))) == []

"""Which archived runs share a build label although they are not one build."""

from __future__ import annotations

from tilewatch.infra.archive import Archive
from tilewatch.tasks.builds.labels import SharedLabel, shared_labels


def labels_shared(archive: Archive) -> list[SharedLabel]:
    """Labels of the whole archive under which a version file has more than one text."""
    return shared_labels(archive.tables.scan("captures", columns=["build", "run_id", "environment"]))

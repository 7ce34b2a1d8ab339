"""Published comparisons judged again by the present rules, and which verdicts are other ones now.

The same runs are judged, whatever has been archived since: a new version differs by the rules and by what was
rebuilt from raw, not by another measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from tilewatch.flows.steps.compare import compare_archived
from tilewatch.flows.steps.published import Publication, publications, version_of
from tilewatch.flows.steps.serving_compare import compare_serving_archived
from tilewatch.infra.archive import Archive
from tilewatch.infra.settings import Settings
from tilewatch.tasks.publish.families import OPERATORS, SERVING, Family
from tilewatch.tasks.sql import sql

RECIPES: dict[Family, Callable[..., Any]] = {
    OPERATORS: compare_archived,
    SERVING: compare_serving_archived,
}
"""The recipe of each family: called with settings, archive, both names, ``overrides`` and ``ids``."""

_CHANGED = """
SELECT '{name}' AS compared, n.baseline, n.candidate, o.version AS old_version, n.version AS new_version,
       n.experiment, n.point, o.verdict AS old_verdict, n.verdict AS new_verdict,
       o.verdict_reason AS old_reason, n.verdict_reason AS new_reason,
       o.analysis_version AS old_analysis_version, n.analysis_version AS new_analysis_version
FROM before o JOIN (SELECT *, {words} AS point FROM now) n USING ({key})
WHERE o.verdict <> n.verdict ORDER BY ALL
"""


def resting_on(archive: Archive, ids: Iterable[str]) -> list[Publication]:
    """What is to be judged again where the runs (or captures) ``ids`` were rebuilt.

    Of several versions that compared the same runs with the same overrides the newest one stands here.
    """
    wanted, found = set(ids), {}
    for one in publications(archive):
        if wanted.intersection(one.stands_on):
            found[one.family, one.baseline, one.candidate, one.stands_on, one.overrides] = one
    return list(found.values())


def judge_again(settings: Settings, archive: Archive, publication: Publication) -> pa.Table:
    """Judge the same runs again; where inputs or rules changed, a new version stands beside the old one.

    Returns one row a point whose verdict is another one now, with both reasons. Raises NothingToCompareError
    where the archive holds one of the runs no longer.
    """
    family, pair = publication.family, (publication.baseline, publication.candidate)
    done = RECIPES[family](
        settings,
        archive,
        *pair,
        overrides=publication.overrides,
        ids=(publication.base_ids, publication.candidate_ids),
    )
    before = version_of(archive, family, *pair, publication.version)
    key = (*family.row_key, *family.stands_on)
    query = _CHANGED.format(name=family.name, words=family.words, key=", ".join(key))
    return sql(query, {"before": before, "now": done.rows})

"""Identical runs must not be called different: the rate of false verdicts, really measured."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.flows.conftest import Home

PAIRS = 5
PROCESSES = "5"
EXPERIMENTS = os.environ.get("TILEWATCH_SOAK_EXPERIMENTS", "A B C D").split()
LIMIT = 0.01


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_at_most_one_percent_of_rows_of_identical_runs_are_confirmed_as_different(
    tmp_path: Path, prefect_server: str
) -> None:
    """Runs 1…11 of the same software; pair i is runs 2i-1 and 2i, and run 2i+1 is its second lease.

    The floor comes from the other archived runs: their spread between leases, never the pair's own.
    """
    home = Home(tmp_path / "home", {"PREFECT_API_URL": prefect_server})
    home.run("up", "--store-only")
    try:
        runs = [_run(home, number) for number in range(2 * PAIRS + 1)]
        counts = [_judge(home, runs[2 * i], runs[2 * i + 1], runs[2 * i + 2]) for i in range(PAIRS)]
    finally:
        home.run("down")
    rows = sum(c["rows"] for c in counts)
    raw, confirmed = (sum(c[name] for c in counts) for name in ("raw", "confirmed"))
    print(f"\n{'pair':>4} {'judged':>7} {'raw':>5} {'confirmed':>9} {'undecided':>9}  largest floor")
    for number, c in enumerate(counts, start=1):
        shown = f"{c['rows']:>7} {c['raw']:>5} {c['confirmed']:>9} {c['undecided']:>9}  {c['floor']:.3f}"
        print(f"{number:>4} {shown}")
    print(f"raw {raw / rows:.2%}, confirmed {confirmed / rows:.2%} of {rows} rows, limit {LIMIT:.0%}")
    assert confirmed <= LIMIT * rows


def _run(home: Home, number: int) -> str:
    words = ("run", *EXPERIMENTS, "--preset", "smoke", "--processes", PROCESSES, "--build", f"aa-{number}")
    home.run(*words, timeout=1800)
    (row,) = home.rows(f"SELECT DISTINCT run_id FROM runs WHERE build = 'aa-{number}'")
    return str(row["run_id"])


def _judge(home: Home, base: str, candidate: str, second: str) -> dict[str, float]:
    home.run("compare", base, candidate, "--second-lease", second)
    (row,) = home.rows(f"""
        SELECT count(*) FILTER (verdict <> 'MISSING' AND ratio IS NOT NULL) AS rows,
               count(*) FILTER (verdict IN ('FASTER', 'SLOWER')) AS raw,
               count(*) FILTER (verdict IN ('FASTER', 'SLOWER') AND confirmed) AS confirmed,
               count(*) FILTER (verdict = 'UNDECIDED' AND ratio IS NOT NULL) AS undecided,
               max(floor_ratio) FILTER (verdict <> 'MISSING' AND ratio IS NOT NULL) AS floor
        FROM comparisons WHERE baseline = '{base}' AND candidate = '{candidate}'""")
    return row

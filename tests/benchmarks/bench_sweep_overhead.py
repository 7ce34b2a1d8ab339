"""What a sweep costs beside measuring: operator calls, processes and the rest, as shares of its wall time.

Reference of every ratio: the wall time of the same sweep. ``python bench_sweep_overhead.py [A] [smoke]``
takes experiments, a preset and options of `tilewatch run`. What is fixed weighs most in a short sweep:
`A full` is over in a minute, and fewer ``--processes`` than the preset's are less favourable than it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.compute as pc

from tilewatch.infra.archive import open_archive
from tilewatch.infra.settings import Settings

TILEWATCH = Path(sys.executable).parent / "tilewatch"


def main(experiments: list[str], preset: str, options: list[str]) -> None:
    """Run one sweep on an empty home and print where its wall time went."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        environment = {**os.environ, "TILEWATCH_HOME": folder, "TILEWATCH_LOCK_FOLDER": f"{folder}/locks"}
        began = time.perf_counter()
        subprocess.run(
            [str(TILEWATCH), "run", *experiments, "--preset", preset, *options],
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wall_s = time.perf_counter() - began
        with open_archive(Settings(home=home)) as archive:
            runs = archive.tables.scan("runs")
    operators_s = pc.sum(runs["operator_time_ns"]).as_py() / 1e9
    processes_s = pc.sum(runs["wall_time_ns"]).as_py() / 1e9
    print(f"sweep {' '.join([*experiments, preset, *options])}: {wall_s:.1f} s of wall time")
    for name, seconds in (
        ("inside operator calls", operators_s),
        ("measuring processes, start to end", processes_s),
        ("orchestration, upload, validation, publishing", wall_s - processes_s),
    ):
        print(f"  {name:<48} {seconds:8.1f} s  {seconds / wall_s:6.1%}")


if __name__ == "__main__":
    words = sys.argv[1:] or ["A", "smoke"]
    preset_at = next(i for i, word in enumerate(words) if word in ("smoke", "quick", "full"))
    main(words[:preset_at], words[preset_at], words[preset_at + 1 :])

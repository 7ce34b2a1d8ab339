"""``python -m … FOLDER``: validate the tables in a folder and leave the outcomes there.

It waits for a line on standard input, so that it can be started before there are tables; at the end of the
input without one it ends, too.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tilewatch.data_contracts import ContractError, expectations
from tilewatch.tasks.validate.exchange import read_table, read_tables, write_outcomes
from tilewatch.tasks.validate.suite import SuiteError, validate


def main(folder: Path) -> int:
    """Exit code 0 with an answer file, or 1 with one sentence on stderr and none."""
    try:
        outcomes = {
            name: validate(name, read_table(path), expectations(name))
            for name, path in read_tables(folder).items()
        }
    except (ContractError, SuiteError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    write_outcomes(folder, outcomes)
    return 0


if __name__ == "__main__" and sys.stdin.readline():
    sys.exit(main(Path(sys.argv[1])))

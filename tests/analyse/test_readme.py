"""The page that explains verdicts quotes the constants that the program uses."""

from __future__ import annotations

import re
from pathlib import Path

from tilewatch.tasks.analyse.statistics import limits

PAGE = Path(limits.__file__).parents[1] / "README.md"
QUOTED = re.compile(r"`(\w+Limits)\.(\w+)` = \*\*([0-9.]+)\*\*")


def test_every_number_on_the_page_of_verdicts_is_the_constant_it_names() -> None:
    quoted = QUOTED.findall(PAGE.read_text())
    assert len(quoted) >= 18
    for group, name, value in quoted:
        assert str(getattr(getattr(limits, group)(), name)) == value, f"{group}.{name}"


def test_the_page_names_no_number_that_is_not_checked() -> None:
    bold = re.findall(r"\*\*([0-9.]+)\*\*", PAGE.read_text())
    assert len(bold) == len(QUOTED.findall(PAGE.read_text()))

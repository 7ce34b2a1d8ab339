"""Every spelling of a version has one normal form; what the table does not know is kept and said."""

from __future__ import annotations

import pytest
import yaml

from tilewatch.tasks.builds.spelling import TABLE, normal, version_of

EXAMPLES = [
    (text, release, row["name"])
    for row in yaml.safe_load(TABLE.read_text())["spellings"]
    for text, release in row["example"].items()
]


@pytest.mark.parametrize(("text", "release", "name"), EXAMPLES)
def test_the_examples_of_the_table_get_their_normal_form_by_their_own_row(
    text: str, release: str | None, name: str
) -> None:
    found = version_of(text)
    assert (found.release, found.spelling, found.raw) == (release, name, text)


def test_three_spellings_of_one_beta_are_one_release() -> None:
    assert {normal(text) for text in ("9.2.0-beta.2", "9.2.0.beta2", "9.2.0-beta2")} == {"9.2.0-beta.2"}


def test_inner_builds_of_one_release_are_told_apart() -> None:
    first, second = version_of("8.5.0 V100R001C25SPC001B232"), version_of("8.5.0 V100R001C25SPC001B212")
    assert first.release == second.release == "8.5.0" and first.inner != second.inner


def test_a_dated_build_is_not_the_release_it_is_named_after() -> None:
    assert normal("9.2.0-20260918144839") != normal("9.2.0")


def test_a_packages_own_number_names_no_release_of_cann() -> None:
    found = version_of("8.2.0.0.201")
    assert found.release is None and found.known and normal("8.2.0.0.201") == "8.2.0.0.201"


def test_an_unknown_form_is_kept_as_it_was_written() -> None:
    found = version_of(" master-2026w36 ")
    assert not found.known and found.release is None and normal(" master-2026w36 ") == "master-2026w36"


def test_every_row_names_its_source() -> None:
    assert all(row["source"] for row in yaml.safe_load(TABLE.read_text())["spellings"])

"""A name that comes out of a file is shown, and does nothing: on a terminal, on a page, in a sheet."""

from __future__ import annotations

import csv
import html
import io

import jinja2
import pyarrow as pa
import pytest

from tilewatch.flows.cli import output
from tilewatch.tasks.pages import templates
from tilewatch.tasks.plain_text import visible, without_formulas
from tilewatch.tasks.publish.files import comparison_csv

CLEARS, COLOURS, TITLE, TURNS = "\x1b[2J", "\x9b31m", "\x1b]0;owned\x07", "a\u202egnp.exe"
FORMULAS = ('=HYPERLINK("http://evil.example")', "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1")
HARMLESS = ("-", "MatMul", "-1.5", "+2 %", "-3e-4", "1=1", "")


@pytest.mark.parametrize("name", [CLEARS, COLOURS, TITLE, TURNS, "a\rb", "\u200b\u2066x"])
def test_no_printed_table_message_or_title_sends_a_control_or_direction_character(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = io.StringIO()
    console = output.Terminal(file=sent, width=200, highlight=False)
    monkeypatch.setattr(output, "out", console)
    monkeypatch.setattr(output, "err", console)
    output.show_rows((name, "b"), [(name, [name])], title=name)
    output.show_table(pa.table({"name": [name], "of": [{"k": name}]}), title=name)
    output.complain(name, name)
    output.warn(name)
    output.out.print(f"[bold]{name}[/]")
    said = sent.getvalue()
    assert visible(name).isprintable() and said.count(visible(name).strip()) >= 8
    assert [c for c in said if not (c.isprintable() or c == "\n")] == []


def test_what_people_write_is_shown_as_it_is() -> None:
    for text in ("Größe, 量化 ×2 – µs", "two\nlines\tand a tab"):
        assert visible(text) == text
    assert (visible("\x1b[0m\x9b"), visible("\u202ea")) == ("\\x1b[0m\\x9b", "\\u202ea")


def test_a_name_in_a_page_is_neither_markup_nor_turns_its_line() -> None:
    page = templates("tilewatch.tasks.publish", "templates")
    text = '<td title="{{ name }}">{{ name }}</td>{{ own|safe }}<i>{{ name|exact }}</i>'
    page.loader = jinja2.DictLoader({"page": text})
    name = f'{TURNS}"><script>alert(1)</script>'
    shown, _, sent_back = page.get_template("page").render(name=name, own="<b>ours</b>").partition("<i>")
    assert "<script>" not in shown and "\u202e" not in shown and "\\u202e" in shown
    assert shown.endswith("<b>ours</b>")
    assert "<script>" not in sent_back and html.unescape(sent_back) == f"{name}</i>"


def test_a_sheet_calculates_no_name_and_keeps_numbers_and_words() -> None:
    texts = [*FORMULAS, *HARMLESS, None]
    table = pa.table({"name": texts, "delta": pa.array([-1.5] * len(texts)), "key": ["-12"] * len(texts)})
    for written in (output.to_csv(table), comparison_csv(table).decode()):
        rows = list(csv.DictReader(io.StringIO(written, newline="")))
        assert [row["name"] for row in rows] == [*(f"'{text}" for text in FORMULAS), "'-", *HARMLESS[1:], ""]
        assert {(row["delta"], row["key"]) for row in rows} == {("-1.5", "-12")}
    assert without_formulas(table).schema == table.schema

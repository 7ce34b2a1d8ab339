"""An interpreter that lacks a module is refused by the name of that module."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewatch.tasks.measure.run import MeasureError, describe


@pytest.mark.parametrize(
    ("missing", "said", "extra"),
    [
        ("torch_npu", "has no torch_npu;", "tilewatch[npu]"),
        ("torch", "has no torch;", "tilewatch[cpu]"),
        ("torch.cuda", "has no torch;", "tilewatch[cpu]"),
        ("numpy", "has no numpy;", "tilewatch[cpu]"),
    ],
)
def test_the_missing_module_is_named_and_which_extra_has_it(
    tmp_path: Path, missing: str, said: str, extra: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho \"ModuleNotFoundError: No module named '{missing}'\" >&2\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(MeasureError) as raised:
        describe(str(python), "npu")
    assert said in str(raised.value) and extra in str(raised.value)

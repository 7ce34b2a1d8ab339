"""Fixtures that the reader tests share."""

from __future__ import annotations

import pytest

from tasks.read.origin import Origin


@pytest.fixture(scope="session")
def origin() -> Origin:
    """The identity of a capture that nothing else knows of."""
    return Origin(
        capture_id="c" * 32,
        run_id="01JZZZZZZZZZZZZZZZZZZZZZZZ",
        build="cann-8.5.0",
        build_id="b" * 16,
        experiment="quant_matmul",
        arm="standalone",
        evidence="measured",
        process_index=3,
    )

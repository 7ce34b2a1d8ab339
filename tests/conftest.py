"""Fixtures that several stages share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the checkout under test."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of real samples and golden vectors; tests that need it skip where it is not there."""
    folder = os.environ.get("TILEWATCH_SHARED")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs real samples: set TILEWATCH_SHARED to the folder that holds samples/ and vectors/")
    return Path(folder)

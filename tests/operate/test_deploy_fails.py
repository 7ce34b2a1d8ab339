"""A server that fails while it is deployed to: what was applied before is said, and a second call goes on."""

from __future__ import annotations

import contextlib
from typing import Any

import httpx
import pytest
import yaml

from tests.operate.test_fleet_file import GOOD
from tilewatch.flows.deployments import apply as module
from tilewatch.flows.deployments.fleet import Fleet


def test_what_was_applied_before_the_server_failed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise httpx.ConnectError("All connection attempts failed")

    monkeypatch.setattr(module, "get_client", lambda **_: contextlib.nullcontext())
    monkeypatch.setattr(module, "_pool", lambda *_: None)
    monkeypatch.setattr(module, "_deployment", refused)
    with pytest.raises(module.DeployError, match="applied before: pool npu$") as raised:
        module.apply(Fleet.model_validate(yaml.safe_load(GOOD)))
    assert "All connection attempts failed" in str(raised.value) and "again" in raised.value.hint

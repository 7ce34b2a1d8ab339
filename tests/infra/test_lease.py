"""Which lock a lease holds: one a card, whoever names the device and however."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewatch.infra.lease import leased
from tilewatch.infra.settings import Settings
from tilewatch.tasks.plan.run_document import RunDocument


def lock_of(tmp_path: Path, agent: str, device_class: str, device: int | None = None) -> str:
    """Name of the lock that a run on such a device holds."""
    document = RunDocument(
        run_id="01RUN", started_ns=1, command="", agent=agent, evidence="measured", preset="smoke", seed=1,
        build="b", build_id="b" * 16, components={}, host="h", device="d", device_class=device_class,
        method={}, method_hash="m" * 16, plans={},
    )  # fmt: skip
    settings = Settings(home=tmp_path, lock_folder=tmp_path, device=device)
    with leased(settings, document) as lease:
        return lease.path.name


def test_the_dies_of_a_card_share_a_lock_and_two_cards_do_not(tmp_path: Path) -> None:
    locks = [lock_of(tmp_path, "npu", "npu Ascend910_9391", device) for device in range(4)]
    assert locks == [f"npu-npu-ascend910-9391-card{card}.lock" for card in (0, 0, 1, 1)]
    full = "npu Ascend910_9391, 24+48 cores"
    whole = [lock_of(tmp_path, "npu", name, 0) for name in (full, f"{full}, 1850 MHz")]
    assert set(whole) == {locks[0]}  # whether or not the clock could be read this time
    single = [lock_of(tmp_path, "npu", "npu Ascend910B3", device) for device in (0, 1)]
    assert len(set(single)) == 2  # one die a card


def test_the_device_that_cann_may_see_is_the_one_that_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "6,7")
    assert lock_of(tmp_path, "npu", "npu Ascend910_9391") == "npu-npu-ascend910-9391-card3.lock"
    assert lock_of(tmp_path, "npu", "npu Ascend910_9391", device=0) == "npu-npu-ascend910-9391-card0.lock"


def test_the_cpu_of_a_host_is_one_device(tmp_path: Path) -> None:
    assert {lock_of(tmp_path, "cpu", "cpu x86_64", device) for device in (None, 0, 1)} == {
        "cpu-cpu-x86-64.lock"
    }

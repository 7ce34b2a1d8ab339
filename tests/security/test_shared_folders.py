"""Folders that users of a host share: what a stranger plants there is neither emptied nor followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewatch.infra import exposure, lease, spool
from tilewatch.infra.errors import ServiceError, SettingsError
from tilewatch.infra.exposure import Look, looks
from tilewatch.infra.settings import Settings
from tilewatch.infra.spool import SpoolError
from tilewatch.tasks.measure.program import locks

STRANGER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make files of another user")


def planted(link: Path, target: Path) -> Path:
    """A link that another user made."""
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
    os.lchown(link, STRANGER, STRANGER)
    return link


@pytest.mark.parametrize("ending", ["", ".next", ".owner"])
@pytest.mark.parametrize("plant", ["link", "dangling", "hard link", "pipe"])
def test_a_lock_file_that_is_planted_is_refused_and_what_it_leads_to_is_left_alone(
    tmp_path: Path, ending: str, plant: str
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    lock = tmp_path / "locks" / "cpu.lock"
    lock.parent.mkdir()
    place = lock.with_name(lock.name + ending)
    make: dict[str, Callable[[], None]] = {
        "link": lambda: place.symlink_to(precious),
        "dangling": lambda: place.symlink_to(tmp_path / "made"),
        "hard link": lambda: place.hardlink_to(precious),
        "pipe": lambda: os.mkfifo(place),
    }
    make[plant]()
    with (
        pytest.raises(locks.PlantedError, match="in the place of a lock"),
        locks.held(lock, "a sweep", lambda owner: None),
    ):
        raise AssertionError("it was locked")
    assert (precious.read_text(), (tmp_path / "made").exists()) == ("mine", False)
    assert locks.owner_of(lock) is None


def test_a_sweep_says_who_may_have_planted_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(home=tmp_path / "home", lock_folder=tmp_path / "locks")
    settings.prepare()

    class Document:
        agent, device_class, run_id = "cpu", "a cpu", "r"

    (settings.lock_folder / "cpu-a-cpu.lock").symlink_to(tmp_path / "home" / "config.yaml")
    with (
        pytest.raises(ServiceError, match="cpu-a-cpu.lock: a link stands in the place of a lock") as found,
        lease.leased(settings, Document()),  # type: ignore[arg-type]
    ):
        raise AssertionError("it was locked")
    assert "tilewatch doctor" in found.value.hint
    assert not (tmp_path / "home" / "config.yaml").exists()


def test_a_link_in_the_place_of_a_run_is_not_followed(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", lock_folder=tmp_path / "locks")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "run.json").write_text("{}")
    settings.prepare()
    (settings.spool_folder / "linked").symlink_to(elsewhere)
    (settings.spool_folder / "whole").mkdir()
    (settings.spool_folder / "whole" / "run.json").symlink_to(elsewhere / "run.json")
    for run_id in ("linked", "whole"):
        with pytest.raises(SpoolError, match="somebody planted it in the spool"):
            spool.find(settings, run_id)


@needs_root
def test_a_folder_that_is_a_link_of_another_user_is_not_used(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    for name in ("home", "spool", "lock_folder"):
        link = planted(tmp_path / "links" / name, target)
        with pytest.raises(SettingsError, match=f"{name}: {link} is a link that another user made"):
            Settings(**{"home": tmp_path / "h", "lock_folder": tmp_path / "l", name: link}).prepare()
    assert list(target.iterdir()) == []


def named(settings: Settings) -> dict[str, Look]:
    return {look.name: look for look in looks(settings)}


def test_the_doctor_finds_nothing_to_say_of_a_home_as_it_is_made(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", lock_folder=tmp_path / "locks")
    settings.prepare()
    assert {name: look.fix for name, look in named(settings).items()} == {
        "database": "", "lock folder": "", "spool": "",
    }  # fmt: skip


def test_the_doctor_warns_of_folders_that_everybody_may_write_to(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", lock_folder=tmp_path / "locks")
    settings.prepare()
    settings.lock_folder.chmod(0o777)
    settings.spool_folder.chmod(0o1777)
    found = named(settings)
    assert found["lock folder"].fix == f"chmod +t {settings.lock_folder}"
    assert found["spool"].fix == f"chmod go-w {settings.spool_folder}"


@needs_root
def test_the_doctor_warns_of_links_that_another_user_planted(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", lock_folder=tmp_path / "locks")
    settings.prepare()
    in_locks = planted(settings.lock_folder / "npu.lock", tmp_path / "x")
    in_spool = planted(settings.spool_folder / "run" / "A", tmp_path)
    found = named(settings)
    assert found["lock folder"].what == f"{in_locks} is a link that another user planted"
    assert found["spool"].what == f"{in_spool} is a link that another user planted"


def test_the_doctor_warns_of_a_database_that_others_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = dict.fromkeys((tmp_path, *tmp_path.parents), 493)
    real = Path.stat

    def walkable(path: Path, **options: bool) -> os.stat_result:
        """The folders above the test's own as every user may walk them."""
        found = real(path, **options)
        if path in way:
            return os.stat_result((found.st_mode | stat.S_IXOTH, *found[1:]))
        return found

    monkeypatch.setattr(Path, "stat", walkable)
    database = tmp_path / "db" / "prefect.db"
    database.parent.mkdir(mode=0o755)
    database.touch(0o644)
    monkeypatch.setenv(exposure.DATABASE, f"sqlite+aiosqlite:///{database}")
    settings = Settings(home=tmp_path / "home", lock_folder=tmp_path / "locks")
    assert named(settings)["database"].fix == f"chmod o= {database}"
    database.chmod(0o600)
    assert named(settings)["database"].fix == ""
    database.chmod(0o644)
    database.parent.chmod(0o700)
    assert named(settings)["database"].fix == "", "nobody walks there"

"""What a host with NPUs says of itself: build identity from version files, device, tenants, log switches."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Optional

import cann_packages
import machine

MARKER = "SOFTWARE_NPU_MARKER"
ASSUMED_L2_BYTES = 192 << 20
"""L2 of a 910C, where the device does not say."""

TASK_QUEUE_DEFAULT = "1"
"""Mode of torch_npu's task queue where TASK_QUEUE_ENABLE says nothing."""

NPU_SMI_TIMEOUT_S = 20
DRIVER_ROOTS = (Path("/usr/local/Ascend"),)
VERSION_FILES = {
    "driver": "driver/version.info",
    "firmware": "firmware/version.info",
}
FORBID_VARIABLE = "TILEWATCH_FORBID_INTERNAL_FORMAT"
RECORDED = (
    "TASK_QUEUE_ENABLE", "ASCEND_LAUNCH_BLOCKING", "ASCEND_GLOBAL_LOG_LEVEL", "ASCEND_MODULE_LOG_LEVEL",
    "ASCEND_HOME_PATH", "ASCEND_RT_VISIBLE_DEVICES", "TUNE_BANK_PATH", FORBID_VARIABLE,
)  # fmt: skip
_TENANT = re.compile(
    r"^\|\s*(?P<npu>\d+)\s+(?P<chip>\d+)\s*\|\s*(?P<pid>\d+)\s*\|\s*(?P<name>\S*)\s*\|"
    r"\s*(?P<memory_mib>\d+)\s*\|",
    re.MULTILINE,
)
_CHIP_NAME = re.compile(r"^\|\s*(\d+)\s+\S+\s*\|[^|]*\|[^|]*\|$")
_RATED = re.compile(r"Aicore Freq\(MHZ\)\s*:\s*(\d+)")
_BUS_ID = re.compile(r"^\|[^|]*\|\s*[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d\s*\|")


def log_variables(kind: str, folder: Optional[Path]) -> Dict[str, str]:
    """CANN's log switches. A tiling process logs OP at DEBUG and RUNTIME at INFO and loses nothing.

    Without synchronous saving bursts leave holes, with fewer than 1000 files the oldest are deleted.
    """
    levels = "OP=0:RUNTIME=1" if kind == "tiling" else ""
    switches = {
        "ASCEND_GLOBAL_LOG_LEVEL": "3",
        "ASCEND_MODULE_LOG_LEVEL": levels,
        "ASCEND_SLOG_PRINT_TO_STDOUT": "0",
        "ASCEND_LOG_PRINT_TO_STDOUT": "0",
        "ASCEND_HOST_LOG_FILE_NUM": "1000",
        "ASCEND_LOG_SYNC_SAVE": "1",
    }
    return switches if folder is None else {**switches, "ASCEND_PROCESS_LOG_PATH": str(folder)}


def internal_formats_forbidden() -> bool:
    """Whether the plan wants the framework's default, under which a format cast silently stays ND."""
    return os.environ.get(FORBID_VARIABLE) == "1"


def marker() -> Optional[str]:
    """What the software NPU of the tests says of itself; None on a real driver."""
    try:
        says = getattr(ctypes.CDLL("libascendcl.so"), MARKER)
    except (OSError, AttributeError):
        return None
    says.restype = ctypes.c_char_p
    return str(says().decode())


def device() -> Dict[str, Any]:
    """The current device: class of comparable devices, cores in force, L2, and the host around it.

    ``deterministic_level`` is torch's: 0 off, 1 warns of an operator that is not, 2 fails.
    """
    import torch

    torch.npu.set_device(0)
    properties = torch.npu.get_device_properties(0)
    cores = _cores(properties)
    name, said = str(properties.name), marker()
    l2_bytes = int(getattr(properties, "L2_cache_size", 0) or 0)
    l2_bytes *= 1 if l2_bytes > 1 << 16 else 1 << 20  # some versions give MiB
    clock_mhz = rated_mhz()
    return {
        "host": socket.gethostname(),
        "device": name if said is None else f"software NPU as {name}",
        "device_class": device_class(name, properties, clock_mhz, said),
        "aicore_mhz": clock_mhz,
        "cores": cores["cube_core_num"],
        "vector_cores": cores["vector_core_num"],
        "total_memory_bytes": int(properties.total_memory),
        "last_level_cache_bytes": l2_bytes or ASSUMED_L2_BYTES,
        "last_level_cache_known": bool(l2_bytes),
        "governor": machine.device()["governor"],
        "host_cpu": machine.device()["device"],
        "os_kernel": platform.release(),
        "deterministic_level": int(torch.get_deterministic_debug_mode()),
        "task_queue_mode": os.environ.get("TASK_QUEUE_ENABLE", TASK_QUEUE_DEFAULT),
        "tuning_bank": _tuning_bank(),
        "settings": {variable: os.environ[variable] for variable in RECORDED if variable in os.environ},
        **({} if said is None else {"software_npu": said}),
    }


def device_class(name: str, properties: Any, clock_mhz: Optional[int], said: Optional[str]) -> str:
    """Class of comparable devices: a name hides variants, so cores and rated clock are part of it.

    Cores count cube and vector cores without limits; either is left out where a version does not say.
    """
    counts = [int(getattr(properties, f"{kind}_core_num", 0) or 0) for kind in ("cube", "vector")]
    parts = [f"{'npu' if said is None else 'software npu'} {name}"]
    parts += [f"{counts[0]}+{counts[1]} cores"] if all(counts) else []
    return ", ".join([*parts, *([f"{clock_mhz} MHz"] if clock_mhz else [])])


def rated_mhz() -> Optional[int]:
    """Rated clock of the AI Cores by npu-smi, not the one they run at now; None where it does not say."""
    card = card_of(_npu_smi("info") or "", visible_device())
    found = _RATED.search(_npu_smi("info", "-t", "common", "-i", str(card or 0)) or "")
    return int(found[1]) if found else None


def _cores(properties: Any) -> Dict[str, int]:
    """Cores in force: those of the device, fewer where a limit is set. 0 where a version does not say."""
    import torch

    names = ("cube_core_num", "vector_core_num")
    found = {name: int(getattr(properties, name, 0) or 0) for name in names}
    if hasattr(torch.npu, "get_device_limit"):
        found.update({name: int(value) for name, value in torch.npu.get_device_limit(0).items()})
    return found


def components() -> Dict[str, str]:
    """Build identity: Python packages, CANN and its packages by torch_npu's own question and by every version
    file, the libraries that hold host tiling, and custom operator packages, both by their bytes.
    """
    import torch
    import torch_npu

    found = {
        "torch": str(torch.__version__),
        "torch_npu": str(torch_npu.__version__),
        "torch_npu_git": str(getattr(torch_npu.version, "git_version", None) or "unknown"),
        "python": platform.python_version(),
        "cann": _package_version("CANN") or "unknown",
        **cann_packages.answered_versions(_package_version),
        **cann_packages.stated_versions(version_files()),
        **cann_packages.host_libraries(),
        **cann_packages.custom_packages(),
    }
    if said := marker():
        found["software_npu"] = said
    return found


def version_files() -> Dict[str, str]:
    """Raw text of every version file that this host has, by a name that is the same on every host."""
    found = {}
    for root in DRIVER_ROOTS:
        for name, below in VERSION_FILES.items():
            if (root / below).is_file():
                found[name] = (root / below).read_text(encoding="utf-8", errors="replace")
    return {**found, **cann_packages.version_files()}


def state() -> Dict[str, Any]:
    """npu-smi's own pages, the second with the AI Core frequency; None where there is no npu-smi."""
    page = _npu_smi("info")
    if page is None:
        return {}
    card = card_of(page, visible_device())
    return {
        "npu_smi": page,
        "card": card,
        "npu_smi_common": _npu_smi("info", "-t", "common", "-i", str(card or 0)),
        "processes": _tenants(page),
    }


def visible_device() -> int:
    """Number of the measured device on this host: the first of those that the process may see."""
    first = os.environ.get("ASCEND_RT_VISIBLE_DEVICES", "").split(",")[0].strip()
    return int(first) if first.isdigit() else 0


def card_of(page: str, device: int) -> Optional[int]:
    """NPU id of the card that device number ``device`` is a die of; None where the page does not list it.

    Devices are numbered as npu-smi lists the chips: two lines a chip, the second with its bus id.
    """
    cards: List[int] = []
    name = None
    for line in page.splitlines():
        if _BUS_ID.match(line) and name is not None:
            cards.append(int(name[1]))
        name = _CHIP_NAME.match(line.rstrip())
    return cards[device] if device < len(cards) else None


def occupied() -> Optional[str]:
    """The processes on either die of the card, which share power and heat, or None.

    Where the card is not known, those on any device of the host.
    """
    page = _npu_smi("info") or ""
    card = card_of(page, visible_device())
    tenants = [tenant for tenant in _tenants(page) if card is None or int(tenant["npu"]) == card]
    names = ", ".join(f"pid {t['pid']} ({t['name'] or 'no name'}) on NPU {t['npu']}" for t in tenants)
    return names or None


def _tenants(page: str) -> List[Dict[str, str]]:
    return [found.groupdict() for found in _TENANT.finditer(page)]


def _npu_smi(*words: str) -> Optional[str]:
    command = shutil.which("npu-smi")
    if command is None:
        return None
    try:
        done = subprocess.run(
            [command, *words], capture_output=True, text=True, timeout=NPU_SMI_TIMEOUT_S, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"npu-smi did not answer: {error}"
    return done.stdout


def _package_version(name: str) -> str:
    """What torch_npu answers for a package; blank where it has no answer."""
    from torch_npu.npu.utils import get_cann_version

    return str(get_cann_version(module=name) or "")


def _tuning_bank() -> Optional[str]:
    """Hash over the files of the tuning bank: a bank decides tilings that shape cannot."""
    root = os.environ.get("TUNE_BANK_PATH")
    if not root or not Path(root).is_dir():
        return None
    digest = hashlib.sha256()
    for path in sorted(p for p in Path(root).rglob("*") if p.is_file()):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]

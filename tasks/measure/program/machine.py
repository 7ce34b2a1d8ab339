"""The machine as the cpu agent sees it: device, pinning, and who else was busy before, during and after."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import resource
import socket
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

CPU = Path("/sys/devices/system/cpu")
ASSUMED_CACHE_BYTES = 32 << 20
_MALLOC_LARGEST = 32 << 20
_MALLOC_KEPT = (1 << 31) - 1
BUSY_SHARE = 0.02
"""Another process is listed when it used more than this share of one core."""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def device() -> Dict[str, Any]:
    """Device, class of comparable devices, usable cores, last level cache and governor. Unknown is None."""
    first = _first_cpu()
    name = first.get("model name") or platform.processor() or platform.machine()
    numbers = [first[key] for key in ("cpu family", "model", "stepping") if key in first]
    cache_bytes = last_level_cache_bytes()
    return {
        "host": socket.gethostname(),
        "device": name,
        "device_class": " ".join(["cpu", platform.machine(), name, "/".join(numbers)]).strip(),
        "cores": len(usable_cpus()) or os.cpu_count(),
        "last_level_cache_bytes": cache_bytes or ASSUMED_CACHE_BYTES,
        "last_level_cache_known": cache_bytes is not None,
        "governor": _text(CPU / "cpu0/cpufreq/scaling_governor"),
        "frequency_max_khz": _text(CPU / "cpu0/cpufreq/cpuinfo_max_freq"),
        "os_kernel": platform.release(),
        "virtual": "hypervisor" in first.get("flags", "").split(),
    }


def last_level_cache_bytes() -> Optional[int]:
    """Size of the largest cache that the first CPU sees; None where the system does not say."""
    sizes = []
    for path in CPU.glob("cpu0/cache/index*/size"):
        if match := re.fullmatch(r"(\d+)([KMG]?)", _text(path) or ""):
            sizes.append(int(match[1]) * _UNITS[match[2]])
    return max(sizes, default=None)


def usable_cpus() -> List[int]:
    """CPUs this process may run on; empty where the system has no such notion."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def pin(threads: int) -> List[int]:
    """Pin this process to its last ``threads`` CPUs and return them; interrupts favour the first ones.

    Raises ValueError where there are fewer CPUs. Returns an empty list where the system cannot pin.
    """
    cpus = usable_cpus()
    if not cpus:
        return []
    if len(cpus) < threads:
        raise ValueError(f"method.threads: {threads}, but only {len(cpus)} CPUs may be used")
    chosen = cpus[-threads:]
    os.sched_setaffinity(0, chosen)
    return chosen


def keep_freed_memory() -> bool:
    """Let glibc keep freed blocks up to 32 MiB for the next allocation; False where there is no glibc.

    Without it a result of some hundred KiB is a fresh mapping, with its page faults, in some processes and
    recycled memory in others, as the order of earlier allocations decides: one operator then has two speeds.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
    return bool(mallopt(mmap_threshold, _MALLOC_LARGEST)) and bool(mallopt(trim_threshold, _MALLOC_KEPT))


def peak_rss_bytes() -> int:
    """Largest resident set of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def packages() -> Dict[str, str]:
    """Installed distributions by the names of their metadata folders: a listing, no import, no parsing."""
    found = {}
    for folder in {p for p in sys.path if p and Path(p).is_dir()}:
        for entry in Path(folder).glob("*.dist-info"):
            if match := re.fullmatch(r"(.+)-([^-]+)\.dist-info", entry.name):
                found[match[1]] = match[2]
    return dict(sorted(found.items()))


class Neighbours:
    """CPU time of all processes at one moment; ``since`` lists those that were busy from then on."""

    def __init__(self) -> None:
        self._clock = os.sysconf("SC_CLK_TCK")
        self._uptime_s = _uptime_s()
        self._ticks = _ticks_by_process()

    def since(self, before: "Neighbours") -> Dict[str, Any]:
        """Load average and the other processes that used a core between ``before`` and this moment."""
        seconds = self._uptime_s - before._uptime_s
        busy = []
        for (pid, start), (name, ticks) in self._ticks.items():
            used_s = (ticks - before._ticks.get((pid, start), (name, 0))[1]) / self._clock
            if pid != os.getpid() and seconds > 0 and used_s > BUSY_SHARE * seconds:
                busy.append({"pid": pid, "name": name, "core_share": round(used_s / seconds, 3)})
        busy.sort(key=lambda process: -float(str(process["core_share"])))
        return {"seconds": round(seconds, 3), "load_average": list(os.getloadavg()), "busy": busy}


def _ticks_by_process() -> Dict[Tuple[int, int], Tuple[str, int]]:
    """Name and CPU ticks of every process, by process id and start time: ids are used again."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        if stat := _text(folder / "stat"):
            name, rest = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :].split()
            found[int(folder.name), int(rest[19])] = name, int(rest[11]) + int(rest[12])
    return found


def _uptime_s() -> float:
    return float((_text(Path("/proc/uptime")) or "0").split()[0])


def _first_cpu() -> Dict[str, str]:
    """Lines of /proc/cpuinfo up to the first blank one."""
    lines = (_text(Path("/proc/cpuinfo")) or "").split("\n\n")[0].splitlines()
    pairs = [line.partition(":") for line in lines]
    return {name.strip(): value.strip() for name, _, value in pairs}


def _text(path: Path) -> Optional[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None

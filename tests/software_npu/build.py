"""Builds the software NPU: the libraries of CANN that torch_npu needs, by the system's C++ compiler.

Everything is in ``libascendcl.so``; the other libraries are empty and depend on it. What torch_npu names but
never calls here becomes a stub that says its name and fails. Nothing depends on the processor's architecture.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
DRIVER = HERE / "driver"
MSPROF = HERE / "msprof.py"
FORWARDING = (
    "hccl", "acl_op_compiler", "ge_runner", "graph", "acl_tdt_channel", "nnopbase", "opapi", "ascend_hal",
    "msprofiler", "ascend_ml", "atb",
)  # fmt: skip
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-Wall", "-Wextra", "-Wno-deprecated-declarations",
         "-Wno-deprecated")  # fmt: skip
LIBRARY = "libascendcl.so"


class BuildError(RuntimeError):
    """The driver cannot be built here; the message says what is missing or what the compiler said."""


def compiler() -> str:
    """Path of the C++ compiler: CXX, else c++ or g++. Raises BuildError."""
    for name in (os.environ.get("CXX"), "c++", "g++"):
        if name and (found := shutil.which(name)):
            return found
    raise BuildError("no C++ compiler (CXX, c++ or g++) on the PATH")


def build(torch_npu: Path, target: Path) -> Path:
    """Build into ``target`` what is not there yet and return the folder with ``lib`` and ``tools``.

    ``torch_npu`` is the installed package; its headers check every signature. The folder's name carries a
    hash of all sources, so a change builds anew. Raises BuildError.
    """
    if not (torch_npu / "include/acl/acl.h").is_file():
        raise BuildError(f"{torch_npu} has no ACL headers")
    sources = sorted(DRIVER.glob("*.cpp"))
    folder = target / _digest([*sources, *DRIVER.glob("*.hpp"), MSPROF, Path(__file__)])
    library_folder = folder / "lib"
    if (folder / "complete").is_file():
        return folder
    library_folder.mkdir(parents=True, exist_ok=True)
    include = f"-I{torch_npu / 'include'}"
    with ThreadPoolExecutor(max_workers=2) as pool:
        objects = list(pool.map(lambda source: _compiled(source, include, folder), sources))
    stubs = folder / "stubs.cpp"
    users = [torch_npu / "lib" / name for name in ("libtorch_npu.so", "libop_plugin_atb.so")]
    stubs.write_text(_stubs(users, objects))
    objects.append(_compiled(stubs, include, folder))
    driver = library_folder / LIBRARY
    _run(compiler(), "-shared", "-o", driver, f"-Wl,-soname,{LIBRARY}", *objects, "-lpthread")
    empty = folder / "empty.cpp"
    empty.write_text("")
    for name in FORWARDING:
        _run(compiler(), "-shared", "-fPIC", "-o", library_folder / f"lib{name}.so", empty,
             f"-Wl,-soname,lib{name}.so", f"-L{library_folder}", "-Wl,--no-as-needed", "-lascendcl",
             "-Wl,-rpath,$ORIGIN")  # fmt: skip
    _install_msprof(folder / "tools/profiler")
    (folder / "complete").touch()
    return folder


def variables(folder: Path) -> dict[str, str]:
    """What ``set_env.sh`` of a CANN does for a process: the libraries and msprof of ``folder``."""
    path = f"{folder / 'tools/profiler/bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    return {"LD_LIBRARY_PATH": str(folder / "lib"), "PATH": path}


def _install_msprof(folder: Path) -> None:
    """msprof where torch_npu looks for it: a command and, beside it, the script that it is."""
    script = folder / "profiler_tool/analysis/msprof/msprof.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(MSPROF, script)
    command = folder / "bin/msprof"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    command.chmod(0o755)


def _compiled(source: Path, include: str, folder: Path) -> Path:
    target = folder / f"{source.stem}.o"
    _run(compiler(), *FLAGS, include, "-c", source, "-o", target)
    return target


def _stubs(libraries: list[Path], objects: list[Path]) -> str:
    """Source of every symbol that torch_npu needs of CANN and the objects lack; each says its name."""
    defined = {name for path in objects for name in _symbols("--defined-only", path)}
    wanted = {name for path in libraries for name in _symbols("--undefined-only", "-D", path)}
    missing = sorted(n for n in wanted - defined if n.startswith(("acl", "rt", "Hccl", "Msprof", "_ZN3atb")))
    lines = ["#include <cstdio>"]
    for name in missing:
        lines.append(
            f'extern "C" __attribute__((visibility("default"))) int stub_{name}() __asm__("{name}");\n'
            f"int stub_{name}() {{\n"
            f'    std::fprintf(stderr, "software NPU: {name} is not there\\n");\n    return 500001;\n}}'
        )
    return "\n".join(lines) + "\n"


def _symbols(*arguments: str | Path) -> list[str]:
    answer = _run("nm", *arguments)
    return [line.split()[-1].split("@")[0] for line in answer.splitlines() if line.strip()]


def _digest(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _run(*command: str | Path) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{' '.join(str(w) for w in command[:3])} …: {done.stderr[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    print(build(Path(sys.argv[1]), Path(sys.argv[2])))

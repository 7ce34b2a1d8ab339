"""Builds as environments: what a process is started under so that it measures one build of several.

A build that lies beside others on a host is reached by the ``set_env.sh`` of its CANN, an interpreter whose
packages are its own, by a folder of libraries, or by several of these.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from tilewatch.data_contracts.errors import USAGE, TilewatchError
from tilewatch.tasks.measure.run import MeasureError

SET_ENV_TIMEOUT_S = 60
CANN_HOMES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_OPP_PATH", "ASCEND_AICPU_PATH",
              "TOOLCHAIN_HOME")  # fmt: skip
"""Variables of a ``set_env.sh`` that name its folders: what another build left of them must not be seen."""
SEARCH_PATHS = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
SHELL_OWN = ("_", "SHLVL", "PWD", "OLDPWD")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


class BuildEnvironmentError(TilewatchError):
    """An environment that is written wrongly, or several that cannot stand side by side."""

    exit_code = USAGE


@dataclass(frozen=True)
class BuildEnvironment:
    """One build on this host. Empty means: as the worker has it."""

    label: Annotated[str, Field(description="Label of the build")]
    set_env: Annotated[str, Field(description="Shell file to source, as CANN's set_env.sh")] = ""
    python: Annotated[str, Field(description="Interpreter of the measuring program")] = ""
    library_path: Annotated[str, Field(description="Folder that stands first in LD_LIBRARY_PATH")] = ""

    def variables(self) -> dict[str, str]:
        """All variables of a process of this build, those of the worker's own CANN left out.

        Raises MeasureError where ``set_env`` is no file or fails.
        """
        found = dict(os.environ)
        if self.set_env:
            found = self._sourced(_without_cann(found))
        if self.library_path:
            rest = found.get("LD_LIBRARY_PATH")
            found["LD_LIBRARY_PATH"] = os.pathsep.join([self.library_path, *([rest] if rest else [])])
        return found

    def facts(self) -> dict[str, str]:
        """What a run document keeps: the parts that are given."""
        return {name: value for name, value in asdict(self).items() if value}

    def option(self) -> str:
        """As ``parse_environment`` reads it."""
        parts = [self.set_env] if self.set_env else []
        parts += [f"{name}={value}" for name in ("python", "library_path") if (value := getattr(self, name))]
        return f"{self.label}={','.join(parts)}"

    def _sourced(self, base: Mapping[str, str]) -> dict[str, str]:
        shell = shutil.which("bash")
        if shell is None:
            raise MeasureError(f"environment {self.label}: needs bash to source {self.set_env}")
        if not Path(self.set_env).is_file():
            raise MeasureError(f"environment {self.label}: {self.set_env} is no file")
        command = [shell, "--noprofile", "--norc", "-c", '. "$0" >/dev/null && exec env -0', self.set_env]
        try:
            done = subprocess.run(
                command, env=dict(base), capture_output=True, text=True, timeout=SET_ENV_TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            raise MeasureError(f"environment {self.label}: {self.set_env} does not end") from None
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise MeasureError(f"environment {self.label}: {self.set_env} failed: {last}")
        pairs = (entry.partition("=") for entry in done.stdout.split("\0") if entry)
        return {name: value for name, _, value in pairs if name not in SHELL_OWN}


def parse_environment(text: str) -> BuildEnvironment:
    """``LABEL=SET_ENV[,python=PATH][,library_path=PATH]``, every part optional but one.

    Paths are made absolute. Raises BuildEnvironmentError saying how it is written.
    """
    label, _, rest = text.partition("=")
    parts: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        name, given, value = part.partition("=")
        name, value = (name, value) if given else ("set_env", part)
        if name not in ("set_env", "python", "library_path") or name in parts or not value:
            break
        parts[name] = os.path.abspath(Path(value).expanduser())  # noqa: PTH100 - keeps symlinks of a venv
    else:
        if _LABEL.fullmatch(label) and parts:
            return BuildEnvironment(label, **parts)
    raise BuildEnvironmentError(
        f"environment {text!r}: write LABEL=/path/set_env.sh, LABEL=python=/path/python, or both and "
        "library_path=/path, joined by commas"
    )


def of_facts(facts: Mapping[str, str]) -> BuildEnvironment | None:
    """Inverse of ``facts``; None for the worker's own environment, of which nothing is kept."""
    return BuildEnvironment(**facts) if facts else None


def _without_cann(variables: Mapping[str, str]) -> dict[str, str]:
    """Without the variables and search paths of a CANN that is already entered: the driver's stay."""
    homes = {os.path.realpath(variables[name]) for name in CANN_HOMES if variables.get(name)}
    kept = {name: value for name, value in variables.items() if name not in CANN_HOMES}
    for name in SEARCH_PATHS:
        if name in kept:
            entries = kept[name].split(os.pathsep)
            kept[name] = os.pathsep.join(entry for entry in entries if not _is_below(entry, homes))
    return kept


def _is_below(entry: str, homes: set[str]) -> bool:
    real = Path(os.path.realpath(entry or "."))
    return any(real.is_relative_to(home) for home in homes)

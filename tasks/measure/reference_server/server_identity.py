"""The identity of the software that serves: the build of the operators, and the server's own files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Dict

from backends import Backend


def components(backend: Backend) -> Dict[str, str]:
    """Every component whose change can change a time; ``reference_server`` is a hash of these files."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return {**backend.components(), "reference_server": digest.hexdigest()[:16]}

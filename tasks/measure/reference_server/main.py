"""The reference server of experiment E: ``python main.py --port PORT --arm NAME --quantization w8a8_int8``.

It runs in the interpreter under test (Python 3.9 or newer with torch and numpy) and needs nothing else: the
kernels are those of the measuring program beside it. See ``serve``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "program"))

from serve import main

if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)  # a step may still be running in its thread, and nothing of it is wanted

"""tilewatch from Python: each name here is a function of ``flows/notebook.py``, imported when used.

The packages beside this file are links to the folders of the repository, so that the distribution installs
one name while the repository keeps its stages at the top.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewatch.flows.notebook import change_points as change_points
    from tilewatch.flows.notebook import cliffs as cliffs
    from tilewatch.flows.notebook import compare as compare
    from tilewatch.flows.notebook import ingest as ingest
    from tilewatch.flows.notebook import load as load
    from tilewatch.flows.notebook import predict as predict

__all__ = ["change_points", "cliffs", "compare", "ingest", "load", "predict"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module tilewatch has no attribute {name!r}; it has {', '.join(__all__)}")
    from tilewatch.flows import notebook

    return getattr(notebook, name)

"""One versioned YAML a table (Open Data Contract Standard); nothing else defines a column.

``schema("samples")`` is the Arrow schema, ``expectations("samples")`` the Great Expectations rules,
``conform`` brings a table of the present or an older version to the present schema.
"""

from tilewatch.data_contracts.contract import (
    Contract,
    ContractError,
    conform,
    contract,
    expectations,
    from_rows,
    schema,
    table_names,
)
from tilewatch.data_contracts.page import documentation

__all__ = [
    "Contract",
    "ContractError",
    "conform",
    "contract",
    "documentation",
    "expectations",
    "from_rows",
    "schema",
    "table_names",
]

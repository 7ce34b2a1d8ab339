"""Files that people write, read strictly: a mistake is said with file, line, field and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from tilewatch.data_contracts.errors import USAGE, TilewatchError


class ExperimentError(TilewatchError):
    """An experiment file that cannot be planned; the message names file, line and field."""

    exit_code = USAGE


class Strict(BaseModel):
    """A mapping of an experiment file: no unknown key, no value of another type, no change afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Model = TypeVar("Model", bound=BaseModel)


def read_strict(path: Path, model: type[Model]) -> Model:
    """The file as ``model``. Raises ExperimentError naming file, line, field and what is allowed.

    A validator that begins its message with a dotted name (``arms[0].name: …``) has it pointed at.
    """
    text = _text(path)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        return model.model_validate(yaml.safe_load(text))
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(path, error) from error
    except ValidationError as error:
        # An unknown key first: it often is the one that is missing, misspelt.
        found = sorted(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
        said = (_explain(path, root, model, e) for e in found)
        raise ExperimentError("\n".join(said)) from error


def kind_of(path: Path) -> str:
    """Value of the top-level key ``kind``; ``operator`` where the file has none. Raises ExperimentError."""
    try:
        content = yaml.safe_load(_text(path))
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(path, error) from error
    return str(content.get("kind", "operator")) if isinstance(content, dict) else "operator"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ExperimentError(f"{path}: cannot be read: {error.strerror}") from error


def _not_yaml(path: Path, error: yaml.MarkedYAMLError) -> ExperimentError:
    mark = error.problem_mark
    return ExperimentError(f"{path}:{mark.line + 1 if mark else 1}: not YAML: {error.problem}")


def _explain(path: Path, root: yaml.Node | None, model: type[BaseModel], error: Any) -> str:
    message = error["msg"].removeprefix("Value error, ")
    location = list(error["loc"])
    if named := re.match(r"([a-z_]+(?:\.[a-z0-9_]+|\[\d+\])*): ", message):
        steps = re.findall(r"[a-z_][a-z0-9_]*|\d+", named[1])
        location += [int(step) if step.isdigit() else step for step in steps]
        message = message[named.end() :]
    line, field = _place(root, location)
    if error["type"] == "extra_forbidden":
        message = "unknown key; allowed here: " + ", ".join(_allowed(model, error["loc"]))
    shown = "" if isinstance(error["input"], dict | list | BaseModel) else f" (found {error['input']!r})"
    return f"{path}:{line}: {field or 'file'}: {message}{shown}"


def _place(root: yaml.Node | None, location: Sequence[int | str]) -> tuple[int, str]:
    """Line (from 1) and dotted name of the deepest node that ``location`` reaches."""
    node, line, field = root, 1, ""
    for step in location:
        if isinstance(node, yaml.MappingNode):
            match = [(k, v) for k, v in node.value if k.value == str(step)]
            if not match:
                break
            line, node = match[0][0].start_mark.line + 1, match[0][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            break
        field += f"[{step}]" if isinstance(step, int) else f".{step}"
    if location and not field.endswith(str(location[-1])) and isinstance(location[-1], str):
        field += f".{location[-1]}"
    return line, field.lstrip(".")


def _allowed(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """Keys of the mapping that holds the last step of ``location``."""
    inside: Any = model
    for step in location[:-1]:
        fields = getattr(inside, "model_fields", {})
        if step in fields:
            inside = fields[step].annotation
        inside = _model_in(inside)
    return sorted(getattr(inside, "model_fields", ()))


def _model_in(annotation: Any) -> Any:
    """The model that a field's type is, or holds in a list, a mapping, an alternative or an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (list, dict, tuple, Union, UnionType, Annotated):
        found = [_model_in(inner) for inner in get_args(annotation)]
        return next((model for model in found if model is not None), None)
    return None

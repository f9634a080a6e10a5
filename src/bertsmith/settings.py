"""Settings that a run or a task can have: typed, strict, changed one by one or by a YAML file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from bertsmith.config import one_sentence
from bertsmith.errors import ConfigError, InputError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Name", "Strict", "changed", "names_of", "read_yaml", "validated"]


_WHOLE, _FRACTION = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"


def _as_name(value: Any) -> Any:
    """YAML reads 0 as a number and `no` as a truth value; a number can only have been meant as it is written."""
    if isinstance(value, bool | float):
        raise ValueError(  # noqa: TRY004 - which pydantic would not catch
            f"is read as {str(value).lower()}; put quotation marks around a name such as 'no' or '1.0'"
        )
    return str(value) if isinstance(value, int) else value


Name = Annotated[str, BeforeValidator(_as_name)]  # of a class, as a user writes it


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Numbers are decimal and plain, as in YAML 1.2: 010 is not 8, nor 12:30 750, but a name as it is written."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as PyYAML has it
        first: [(tag, form) for tag, form in forms if tag not in (_WHOLE, _FRACTION)]
        for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(_WHOLE, re.compile(r"[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    _FRACTION,
    re.compile(r"[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?|\.(?:inf|Inf|INF))$|\.(?:nan|NaN|NAN)$"),
    list("-+.0123456789"),
)


class Strict(BaseModel):
    """Frozen, and an unknown key is an error that names it. Values of `as_text` are read as they are, not as YAML.

    `free` are mappings whose names are the user's own, such as those of classes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    as_text: ClassVar[frozenset[str]] = frozenset()
    free: ClassVar[frozenset[str]] = frozenset()


Settings = TypeVar("Settings", bound=Strict)


def validated(kind: type[Settings], content: Any, where: str = "") -> Settings:
    """Settings from plain values; what is wrong is one sentence that names the setting."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise ConfigError(where + one_sentence(error)) from error


def changed(settings: Settings, changes: dict[str, Any]) -> Settings:
    """Settings with values replaced: nested as in a YAML file, or flat with dots as `--set` has them."""
    content = settings.model_dump()
    for path, value in changes.items():
        _put(content, str(path).split("."), value, str(path), type(settings))
    return validated(type(settings), content)


def names_of(changes: Mapping[str, Any]) -> set[str]:
    """The settings that changes are about, however they are written.

    >>> sorted(names_of({"epochs": 2, "optimizer": {"rate": 1e-3}, "batch": "{size: 8}"}))
    ['batch.size', 'epochs', 'optimizer.rate']
    """
    found: set[str] = set()
    for path, given in changes.items():
        try:
            value = yaml.safe_load(given) if isinstance(given, str) else given
        except (yaml.YAMLError, RecursionError):  # text that is meant as it is
            value = given
        found |= {f"{path}.{name}" for name in names_of(value)} if isinstance(value, Mapping) else {str(path)}
    return found


def _put(content: dict[str, Any], keys: list[str], value: Any, path: str, kind: type[Strict]) -> None:
    if keys[0] in kind.free and len(keys) > 1:
        value, keys = {".".join(keys[1:]): _parsed(value, path)}, keys[:1]
    *outer, last = keys
    for key in outer:
        known, content = content, content.get(key)  # type: ignore[assignment]
        if not isinstance(content, dict):
            raise ConfigError(f"{path}: there is no such setting; there are {', '.join(sorted(known))}")
    if last not in content:
        raise ConfigError(f"{path}: there is no such setting; there are {', '.join(sorted(content))}")
    if last not in kind.as_text:
        value = _parsed(value, path)
    if isinstance(content[last], dict) and isinstance(value, dict):
        if last in kind.free:
            content[last] = {**content[last], **value}
            return
        for key, inner in value.items():
            _put(content[last], [str(key)], inner, f"{path}.{key}", kind)
        return
    content[last] = value


def _parsed(value: Any, path: str) -> Any:
    """A value as YAML reads it, where it is text."""
    if not isinstance(value, str):
        return value
    try:
        return yaml.load(value, _Loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path}: {value!r:.80} is not a value that YAML can read") from error


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file of names and values."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"{path}: not valid YAML ({error})".replace("\n", " ")) from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected names and values, found {type(content).__name__}")
    return content

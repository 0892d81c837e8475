"""What commands take: every option, declared once, and the results folder with names of
what is in it.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cbm_cli.errors import CbmError
from cbm_cli.text import FORMATS, LARGEST, STATISTICS, shortened, whole_number

if TYPE_CHECKING:
    from cbm_cli.results import Results

Pairs = Sequence[tuple[str, str]]  # names with their values
GRIDS = (".yaml", ".yml")  # suffixes
_FILES = (*GRIDS, ".html", ".npz", ".png", ".pdf", ".svg")
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"


class Whole(click.IntRange):
    """A whole number, written as in grids: 10000, 10_000, 1e4; or a word with a meaning
    of its own.
    """

    def __init__(
        self, least: int, most: int | None = None, word: str | None = None
    ) -> None:
        super().__init__(least, most)
        self.word, self.name = word, f"n|{word}" if word else "n"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        number = whole_number(value)
        if value == self.word:
            return value
        if not isinstance(number, int):
            self.fail(
                f"{shortened(value)} is not a whole number, such as 10 or 1e4.",
                param,
                ctx,
            )
        if self.max is None and number > LARGEST:
            self.fail(
                f"{shortened(str(value))} is too large; the limit is {LARGEST:,}.",
                param,
                ctx,
            )
        return super().convert(number, param, ctx)


def _pairs(_: click.Context, option: Any, texts: Sequence[str]) -> Pairs:
    """Read SETTING=VALUE[,VALUE] or FIELD=VALUE."""
    pairs = [
        (name.strip(), value.strip())
        for name, _, value in (text.partition("=") for text in texts)
    ]
    for text, (name, value) in zip(texts, pairs, strict=True):
        if not name or not value:
            form = f"{option.opts[0]} {option.metavar.partition('[')[0]}"
            raise CbmError(
                f"{option.opts[0]} {text}: write {form}, such as learning_rate=0.05"
            )
    return pairs


def _fields(
    context: click.Context, option: Any, texts: Sequence[str]
) -> dict[str, str]:
    """Read FIELD=VALUE, each field once."""
    pairs = _pairs(context, option, texts)
    for field in [
        name for name, times in Counter(name for name, _ in pairs).items() if times > 1
    ]:
        values = ",".join(value for name, value in pairs if name == field)
        raise CbmError(
            f"--set {field}: is given twice; several values are an axis: --set "
            f"{field}=[{values}]"
        )
    return dict(pairs)


def _names(_: click.Context, option: Any, text: str | None) -> list[str] | None:
    """Read names of settings, separated by commas, or none of them."""
    names = (
        None
        if text is None
        else [name.strip() for name in text.split(",") if name.strip()]
    )
    if names == []:
        raise CbmError(f"{option.opts[0]}: names no setting; write one, or none")
    return [] if names == ["none"] else names


def _limits(
    _: click.Context, option: Any, text: str | None
) -> tuple[float | None, float | None]:
    """Read LOW:HIGH, either of which may be left out."""
    match = re.fullmatch(rf"({_NUMBER})?:({_NUMBER})?", text or ":")
    low, high = (
        (float(end) if end else None for end in match.groups()) if match else (1.0, 0.0)
    )
    if low is not None and high is not None and low >= high:
        raise CbmError(
            f"{option.opts[0]} {text}: write LOW:HIGH, such as 0:1000 or :500"
        )
    return low, high


def _size(
    _: click.Context, __: Any, text: str | None
) -> str | tuple[float, float] | None:
    if text in (None, "column", "page"):
        return text
    match = re.fullmatch(r"(\d+\.?\d*)x(\d+\.?\d*)", text)
    size = (float(match[1]), float(match[2])) if match else (0.0, 0.0)
    if not all(1 <= side <= 50 for side in size):
        raise CbmError(
            f"--size {text}: write column, page, or WxH in inches from 1 to 50, "
            "such "
            "as 6.5x4"
        )
    return size


def folder_of_data(name: str | None) -> Path | None:
    """Return the folder in which the data of results are looked for; CbmError for
    anything else.
    """
    if name and not Path(name).is_dir():
        told = "trials have data of their own; name the folder that holds the files"
        raise CbmError(f"--data {name}: is no folder; {told}")
    return Path(name) if name else None


def _writable(_: click.Context, option: Any, path: Path) -> Path:
    """Return a file with a suffix of the option's metavar, or a folder, where a command
    can write.
    """
    suffix, suffixes, above = (
        path.suffix.lower(),
        re.findall(r"\.\w+", option.metavar),
        path.resolve().parent,
    )
    if suffixes and path.is_dir():
        told = f"is a folder; name a file in it, such as {path / ('new' + suffixes[0])}"
    elif suffixes and suffix not in suffixes:
        told = f"the suffix must be {' or '.join(suffixes)}"
    elif not suffixes and (path.is_file() or path.name == "-" or suffix in _FILES):
        told = "is the name of a file; name a folder, which is made if it is missing"
    elif not above.is_dir():
        told = f"there is no folder {above}; make it first, or write elsewhere"
    elif not os.access(path if path.exists() else above, os.W_OK):
        told = "cannot write there; choose another place"
    else:
        return path
    raise CbmError(f"-o {path}: {told}")


def refuse_input(output: Path, *inputs: Path | None) -> None:
    """Raise CbmError where a command would write over what it reads."""
    if any(output.resolve() == one.resolve() for one in inputs if one):
        raise CbmError(f"-o {output}: is read by this command; choose another name")


def _option(names: str, help: str, **more: Any) -> Callable:
    return click.option(*names.split(), help=help, **more)


def _flag(names: str, help: str) -> Callable:
    return click.option(*names.split(), help=help, is_flag=True)


_PATH: Any = click.Path(path_type=Path)
_FIELD: Any = {"metavar": "FIELD=VALUE", "multiple": True, "callback": _fields}
_SELECT: Any = {
    "metavar": "SETTING=VALUE[,VALUE]",
    "multiple": True,
    "callback": _pairs,
}
_SETTINGS: Any = {"metavar": "SETTINGS|none", "callback": _names}
_LIMITS: Any = {"metavar": "LOW:HIGH", "callback": _limits}
_PARTS, _VALUES = click.Choice(["valid", "train", "test"]), click.Choice(STATISTICS)
_TESTS, _ALPHA = (
    click.Choice(["signed-rank", "rank-sum"]),
    click.FloatRange(0, 1, True, True),
)
_FORMATS, _AVERAGES = (
    click.Choice(FORMATS),
    click.Choice(["median", "mean", *STATISTICS]),
)
_LOG, _ROWS = click.Choice(["x", "y", "x,y"]), "NAME|FILE|DIR"
_X = "updates|epochs|seconds|gradient-steps|SETTING"
OPTIONS: dict[str, Callable] = {
    "json": _flag("--json as_json", "Print JSON."),
    "jobs": _option(
        "-j --jobs", "Cores; 0: only this process. Default: all.", type=Whole(0)
    ),
    "no-code": _flag(
        "--no-code", "Refuse recorders of the form file.py:function: they are code."
    ),
    # runs
    "scheduler": _option(
        "--scheduler", "A Dask scheduler, as tcp://host:8786.", metavar="ADDRESS"
    ),
    "trials": _option(
        "--trials", "Trials of each cell, instead of the grid's number.", type=Whole(1)
    ),
    "set": _option("--set changes", "Set a field in every experiment.", **_FIELD),
    "available": _flag(
        "--available", "Leave out data sets whose files are missing, and exit with 3."
    ),
    "dry-run": _flag(
        "--dry-run", "Only count the trials to do, with their time if it is known."
    ),
    "fail-fast": _flag("--fail-fast", "Stop at the first trial that fails."),
    "sample": _option(
        "--sample", "Trials, chosen at random.", type=Whole(1, word="all"), default=10
    ),
    # what is shown of cells
    "select": _option(
        "--select", "Only cells with one of these values; can be repeated.", **_SELECT
    ),
    "choose": _option(
        "--choose",
        "Settings of which a cell shows the best value on --by.",
        **_SETTINGS,
    ),
    "by": _option(
        "--by", "With --choose: the part that decides; default: valid.", type=_PARTS
    ),
    "metric": _option(
        "--metric", "Such as test_log_likelihood, test_cost or weight_norm."
    ),
    "statistic": _option(
        "--statistic",
        "Default: best-valid if there is a validation part.",
        type=_VALUES,
    ),
    # tables
    "format": _option(
        "-f --format format_", "How it is written.", type=_FORMATS, default="text"
    ),
    "rows": _option(
        "--rows", "Settings shown as rows, such as sampler,hidden.", **_SETTINGS
    ),
    "columns": _option("--columns", "Settings shown as columns.", **_SETTINGS),
    "test": _option("--test", "Wilcoxon test.", type=_TESTS, default="signed-rank"),
    "alpha": _option("--alpha", "Level of significance.", type=_ALPHA, default=0.05),
    "correction": _option(
        "--correction", "Correct p-values of a row.", type=click.Choice(["holm"])
    ),
    # pictures
    "size": _option(
        "--size",
        "Width in a journal, or inches.",
        metavar="column|page|WxH",
        callback=_size,
    ),
    "title": _option("--title", "Title in place of the settings; an empty one: none."),
    "metrics": _option(
        "--metric",
        "Column of curves or records; repeated: a panel each.",
        multiple=True,
    ),
    "panels": _option(
        "--panels",
        "Settings, and metric, that make panels; others make lines.",
        **_SETTINGS,
    ),
    "x": _option("--x", "The x axis; of the kind settings: a numeric one.", metavar=_X),
    "xlim": _option("--xlim", "Ends of the x axis.", **_LIMITS),
    "ylim": _option("--ylim", "Ends of the y axis.", **_LIMITS),
    "log": _option(
        "--log", "Axes with a logarithmic scale.", metavar="x|y|x,y", type=_LOG
    ),
    "smooth": _option(
        "--smooth", "Running mean over N updates.", type=Whole(1), default=1
    ),
    "average": _option(
        "--statistic", "Of curves: median or mean; else as in tables.", type=_AVERAGES
    ),
    # machines
    "exact": _option(
        "--exact method", "Sum over all states (default).", flag_value="exact"
    ),
    "ais": _option(
        "--ais method", "Estimate by annealed importance sampling.", flag_value="ais"
    ),
    "pseudo": _option(
        "--pseudo method", "Pseudo-likelihood of an RBM.", flag_value="pseudo"
    ),
    "temperatures": _option(
        "--temperatures", "Default: 14500; for deep machines 29000.", type=Whole(3)
    ),
    "runs": _option("--runs", "Independent runs of AIS.", type=Whole(2), default=100),
    "subsample": _option(
        "--rows", "Evaluate a fixed subsample of this many rows.", type=Whole(1)
    ),
    "again": _flag("--again", "Also evaluate trials that have such values."),
    "data": _option(
        "--data source",
        "Rows of a machine; folder of the data of results.",
        metavar=_ROWS,
    ),
    "layer": _option(
        "--layer", "Hidden layer, from 1; default: the last.", type=Whole(1)
    ),
    "count": _option(
        "-n --count",
        "Samples; default: 100, or one for each given row.",
        type=Whole(1, 10**9),
    ),
    "given": _option(
        "--given", "Rows to complete: gaps are sampled.", metavar="FILE", type=_PATH
    ),
    "sampler": _option(
        "--sampler", "PT_c: c temperatures.", metavar="gibbs|PT_c", default="PT_10"
    ),
    "steps": _option(
        "--steps",
        "Sweeps of a chain before each of its samples.",
        type=Whole(1),
        default=1000,
    ),
    "seed": _option(
        "--seed", "Same seed, same bytes.", type=Whole(0, 2**63 - 1), default=1
    ),
    # grids
    "paper": _flag("--paper", "Write the paper's experiments instead of the starter."),
}


class _Command(click.Command):
    """A command that refuses an option that is given twice, of which Click would take
    the last one.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        seen = dict[str | None, str]()
        for one in self.make_parser(ctx).parse_args([*args])[2]:
            if isinstance(one, click.Option) and not one.multiple:
                if one.name in seen:
                    names = dict.fromkeys((seen[one.name], one.opts[-1]))
                    raise click.UsageError(
                        f"{' and '.join(names)}: given twice; give one", ctx
                    )
                seen[one.name] = one.opts[-1]
        return super().parse_args(ctx, args)


def command(*names: str, name: str | None = None) -> Callable:
    """Make a function a command that takes some of the `OPTIONS`."""

    def make(function: Callable) -> click.Command:
        for one in reversed(names):
            function = OPTIONS[one](function)
        return click.command(name, cls=_Command)(function)

    return make


def output(metavar: str, help: str, **more: Any) -> Callable:
    """Return the option -o, for a file with a suffix that the metavar has, or for a
    folder.
    """
    return click.option(
        "-o",
        "--output",
        type=_PATH,
        metavar=metavar,
        callback=_writable,
        help=help,
        **more,
    )


@dataclass(frozen=True)
class Target:
    """The input of a command: a results folder, and names of experiments or machines in
    it.
    """

    folder: Path
    names: tuple[str, ...] = ()

    def results(self) -> Results:
        """Open the results folder; CbmError, which also lists other meanings of a first
        word.
        """
        from cbm_cli.results import Results

        is_name = (
            self.names and self.folder == Path("results") and not self.folder.exists()
        )
        return Results(
            Path(self.names[0]) if is_name else self.folder
        )  # what else could it be?

    def models(self) -> list[Path]:
        """Return the machines if a machine is named: files, and RUN:TRIAL in the
        folder.
        """
        from cbm_cli.results.folder import is_machine, is_machine_file

        if not any(map(is_machine, self.names)):
            return []
        folder = Path() if self.folder == Path("results") else self.folder
        as_given = (is_machine_file(name) or "/" in name for name in self.names)
        return [
            Path(name) if it else folder / name
            for name, it in zip(self.names, as_given, strict=True)
        ]

    def model(self) -> Path:
        """Return the one machine that is named; CbmError for none, and for several."""
        if len(found := self.models()) != 1:
            told = "name one machine: a file, or RUN:TRIAL as `cbm best` prints it"
            raise CbmError(f"{' '.join(self.names) or self.folder}: {told}")
        return found[0]


def results_and(names: str, *suffixes: str) -> Callable:
    """Take [RESULTS] and then names, or files with some suffixes; the command gets its
    ``target``.

    A first word that is there or ends with a slash is RESULTS, else results/ is. A
    folder may precede a name: ``out/NAME``. If a command takes files with such
    suffixes, any file is a name.
    """

    def target_of(
        _: click.Context, __: click.Parameter, words: tuple[str, ...]
    ) -> Target:
        first = "".join(words[:1])
        place = Path(first)
        is_name = place.suffix in suffixes or (suffixes and place.is_file())
        if not first or is_name or not (place.exists() or "/" in first):
            return Target(Path("results/"), words)
        if place.exists() or first.endswith("/"):
            return Target(place, words[1:])
        return Target(place.parent, (place.name, *words[1:]))

    return click.argument(
        "target", nargs=-1, metavar=f"[RESULTS] {names}", callback=target_of
    )

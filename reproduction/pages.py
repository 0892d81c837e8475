"""Write the pages of the reproduction from the kept results beside them, and from what pages.yaml says.

    python reproduction/pages.py

writes index.md, and table-N.md and figure-N.md where something was run. keep.py keeps results and draws the
pictures. The same files give the same pages.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from cbm_cli.datasets.sources import SOURCES
from cbm_cli.grid.read import read_grid
from cbm_cli.grid.words import value_of
from cbm_cli.paper import FIGURES, PAPER_TABLES
from cbm_cli.paper.comparison import compare
from cbm_cli.paper.findings import VERDICTS, Judged, check_findings, count_findings
from cbm_cli.paper.published import published_cells
from cbm_cli.paper.scoreboard import score, scoreboard
from cbm_cli.results import Results
from cbm_cli.sheets import Document, Group

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
PAGES = DOCS / "reproduction"
MOMENTS = {"_max": "maximum", "_min": "minimum", "_final": "final value"}  # endings of columns
PARTS = ("train_", "valid_", "test_")  # beginnings
NORMS = ("weight_norm_final", "visible_bias_norm_final", "hidden_bias_norm_final")
SUBSTITUTES = {one.stand_in: name for name, one in SOURCES.items() if one.stand_in}  # and for which set
COUNTS = {"as stated": "as_stated", "by means": "means_agree"}  # of comparisons, in findings
EARLIER = "Drawn by an earlier version of cbm; the caption in the picture says what its lines are."
Page = list[str]  # blocks of Markdown


class Reproduction:
    """What was kept, and what it says about the paper."""

    def __init__(self, kept: Path) -> None:
        results = Results(kept)
        everything = results.all_summaries()
        self.trials = dict([*everything.groupby("experiment")])
        self.comparison = compare(everything, results.store)
        self.score = score(self.comparison).set_index("table")
        beside = everything[everything["data"].isin(SUBSTITUTES)].replace({"data": SUBSTITUTES})
        self.substituted = beside if beside.empty else compare(beside, results.store).cells
        self.judged = check_findings(everything, results.store)
        self.texts = _yaml(HERE / "pages.yaml")
        grid = DOCS.parent / "experiments.yaml"
        self.grid, self.planned = _yaml(grid)["experiments"], read_grid(grid).experiments
        self.figures = _yaml(FIGURES)
        costs = (DOCS / "scale.md").read_text(encoding="utf-8")
        self.estimates = dict(re.findall(r"^\| ([\w-]+) \| .* \| (.*) \|$", costs, re.M))

    def experiments(self, kind: str, number: int) -> list[str]:
        """Return the experiments of a table or figure."""
        if kind == "tables":
            return self.texts[kind][number]["experiments"]
        words = [word for part in self.figures[number]["parts"] for word in shlex.split(part["plot"])[1:]]
        return list(dict.fromkeys(word for word in words if word in self.grid))

    def kept(self, number: int) -> list[str]:
        """Return what was kept of the experiments of a figure, their short ones, and others beside them."""
        names = self.experiments("figures", number) + self.texts["figures"][number].get("also", [])
        return [one for name in names for one in (name, f"{name}-short") if one in self.trials]

    def runs(self, *names: str) -> pd.Series:
        """Return the number of trials of each run of some experiments."""
        return pd.concat([self.trials[name].groupby("run_id").size() for name in names])

    def parts(self, names: Iterable[str]) -> str:
        """Say which part of some experiments was kept; nothing of those with all cells at full length."""
        said = []
        for name in names:
            rows, cells = self.trials[name], [cell.row() for cell in self.planned[name].cells]
            kept = [({rows["run_id"].nunique()}, {len(cells)}, "cells")]
            for unit in ("epochs", "updates"):
                kept.append(({*rows[unit].dropna()}, {cell[unit] for cell in cells} - {None}, unit))
            part = [
                f"{'some at ' * bool(some & whole)}{' and '.join(f'{n:,.0f}' for n in sorted(some - whole))} "
                f"of {max(whole):,} {unit}"
                for some, whole, unit in kept
                if whole and some - whole
            ]
            said += [f"{name}, {', '.join(part)}"] if part else []
        return "; ".join(said)

    def findings(self, kind: str, number: int) -> list[Judged]:
        """Return the findings that the paper has beside a table or figure."""
        return [one for one in self.judged if number in _numbers(kind, one.finding["place"])]

    def pages(self) -> dict[str, str]:
        """Return the text of every page by its name."""
        found = {f"table-{number}": self.table(name, number) for name, number in PAPER_TABLES.items()}
        found |= {f"figure-{number}": self.figure(number) for number in self.texts["figures"]}
        found = {f"{name}.md": page for name, page in found.items() if page}
        found["index.md"] = self.index(found)
        return {name: "\n\n".join(page) + "\n" for name, page in found.items()}

    def table(self, name: str, number: str) -> Page:
        """Return the page of a table of the paper; none if none of its values was run."""
        own = self.comparison.cells[self.comparison.cells["table"] == name]
        if own.empty:
            return []
        texts = self.texts["tables"][int(number)]
        chances = self.comparison.chances.loc[own.index]
        part = replace(self.comparison, cells=own, chances=chances, missing={}, not_comparable=0)
        document = part.document()
        row = self.score.loc[number]
        two_sweeps = (part.plausible()["obtained_sampler"] == "PCD-2").any()
        how = "as read, with PCD-2 for the published PCD-1 except on MNIST"
        as_read = f"; {how}, {row['read']}" if two_sweeps else ""
        return [
            f"# Table {number}: {texts['title']}",
            _commands(texts["experiments"], "cbm paper compare reproduction/results"),
            f"{row['run']} of {row['published']} published values were run, with "
            f"{_trials(own['obtained_n'])}. As named, {row['named']} of these are within 2 standard "
            f"errors{as_read}. Marks that agree, as named: {row['agreeing']} of {row['marks']}."
            f"{self.left(name, own)}",
            *_said(texts),
            *_findings(self.findings("table", int(number))),
            "## Published beside obtained",
            replace(document, notes=[], summary=[]).render("markdown").strip(),
            _notes(document.notes),
            *self.on_substitutes(name, texts),
        ]

    def on_substitutes(self, name: str, texts: Mapping[str, str]) -> Iterator[str]:
        """Write published values of a table beside those obtained on substitutes of their data sets."""
        if self.substituted.empty or (self.substituted["table"] != name).all():
            return
        cells = self.substituted[self.substituted["table"] == name]
        names = {whole: one for one, whole in SUBSTITUTES.items()}
        kept = [names[whole] for whole in cells["dataset"].unique()]
        yield "## On substitutes"
        yield " ".join(f"{one}: {SOURCES[one].remark}" for one in kept)
        yield texts["substitutes"].strip()
        words = {True: "yes", False: "no", None: "–"}
        rows = (
            [
                names[cell["dataset"]],
                cell["hidden"],
                f"{cell['obtained_sampler']}-{cell['learning_rate']}",
                value_of("offsets", cell["offsets"]).unicode,
                f"{cell['published_mean']} ± {cell['published_std']} ({cell['published_final']})",
                "{obtained_mean:.2f} ± {obtained_std:.2f} ({obtained_final:.2f})".format_map(cell),
                str(cell["obtained_n"]),
                f"{words[cell['published_bold']]}/{words[cell['obtained_bold']]}",
            ]
            for cell in cells.to_dict("records")
        )
        header = ["substitute", "hidden", "Algorithm-η", "offsets", "published", "obtained", "n", "bold"]
        yield _markdown(header, rows)

    def left(self, name: str, own: pd.DataFrame) -> str:
        """Name the data of a table of which nothing was run."""
        published = published_cells()
        keys = ["dataset", "hidden", "learning_rate"]
        every = published.loc[published["table"] == name, keys].drop_duplicates()
        left = every[~every.set_index(keys).index.isin(own.set_index(keys).index)]
        texts = [
            f"{', '.join(its['dataset'])} ({', '.join(key)})"
            for key, its in left.groupby(keys[1:], sort=False)
        ]
        return f" Not run, by hidden units and rate: {'; '.join(texts)}." if texts else ""

    def figure(self, number: int) -> Page:
        """Return the page of a figure of the paper; none if none of its experiments was run."""
        names, texts, picture = self.kept(number), self.texts["figures"][number], f"figure-{number}.png"
        pictures = sorted(PAGES.glob(f"figure-{number}[-.]*png"), key=lambda path: path.stem)
        if not names:
            return []
        shorter = [name for name in names if name.endswith("-short")]
        tables = {name: n for n, table in self.texts["tables"].items() for name in table["experiments"]}
        elsewhere = [f"[table {tables[name]}](table-{tables[name]}.md)" for name in names if name in tables]
        return [
            f"# Figure {number}: {texts['title']}",
            _commands(
                [*names, *texts.get("options", [])],
                f"cbm paper figure results/ {number} --size page -o {picture}",
            ),
            f"In the paper: {self.figures[number]['shows']}",
            *(f"Run instead of the whole, {name}: {self.grid[name]['description']}" for name in shorter),
            *([f"**Run in part.** {parts}."] if (parts := self.parts(names)) else []),
            *_said(texts),
            *(block for path in pictures for block in _shown(number, path)),
            *_findings(self.findings("figure", number)),
            *(f"Values: {link}." for link in elsewhere),
            *(block for name in names if name not in tables for block in self.values(name)),
        ]

    def values(self, name: str) -> Iterator[str]:
        """Write mean ± standard deviation of every run of an experiment."""
        rows, table = self.trials[name], self.grid[name].get("table", {})
        axes = [axis for part in ("groups", "rows", "columns") for axis in _listed(table.get(part, []))]
        axes = list(dict.fromkeys([axis.replace(".", "_") for axis in axes] + ["data", "offsets"]))
        known = [c for c in rows if c.endswith((*MOMENTS,)) and rows[c].notna().any()]
        columns = [c for c in known if c.startswith(PARTS) or c in NORMS]
        rows = rows.copy()
        if total := table.get("scale") == "total":
            parts = [c for c in columns if c.startswith(PARTS)]
            rows[parts] = rows[parts].mul(rows["n_train"], axis=0)
        lines = (
            [
                *(_spelled(axis, own[axis].iloc[0]) for axis in axes),
                str(len(own)),
                *map(_mean, (own[c] for c in columns)),
            ]
            for _, own in rows.groupby("run_id", sort=False)
        )
        yield f"## Values of {name}"
        yield _markdown([*axes, "n", *map(_heading, columns)], lines)
        scale = "; likelihoods are summed over the train rows" if total else ""
        yield f"Mean ± standard deviation over n trials{scale}."

    def index(self, pages: Mapping[str, Page]) -> Page:
        """Return the front page."""
        judged = count_findings(self.judged)
        return [
            self.texts["front"].strip(),
            "## Scoreboard",
            *_linked(scoreboard(self.comparison), pages),
            "## Figures",
            _markdown(["Figure", "experiments", "run", "findings"], self._figure_rows(pages)),
            "## Findings",
            "What the paper states in prose and figures, checked by `cbm paper compare --findings`. "
            f"{judged} As stated: comparisons that are significantly as the paper states; by means: those "
            "whose means are, significantly or not. Fewer than 6 trials decide nothing.",
            _markdown(["Finding", "paper", "verdict", *COUNTS, "trials"], self._finding_rows()),
            "## Open disagreements",
            *self._open(),
            "## Hours spent, and what the rest takes",
            *self._hours(),
        ]

    def _figure_rows(self, pages: Mapping[str, Page]) -> Iterator[Sequence[str]]:
        for number in self.texts["figures"]:
            names, page = self.kept(number), f"figure-{number}.md"
            verdicts = Counter(one.verdict for one in self.findings("figure", number))
            run = ["not run"]
            if names:
                run = [f"{', '.join(names)}: {_trials(self.runs(*names))}", self.parts(names)]
            yield (
                f"[{number}]({page})" if page in pages else str(number),
                ", ".join(self.experiments("figures", number)),
                "; ".join(filter(None, run)),
                ", ".join(f"{verdicts[name]} {name}" for name in VERDICTS if verdicts[name]) or "–",
            )

    def _finding_rows(self) -> Iterator[Sequence[str]]:
        for one in self.judged:
            record = one.record()
            counts = (f"{record[name]} of {record['compared']}" for name in COUNTS.values())
            counts = counts if record["compared"] else ["–"] * len(COUNTS)
            yield record["says"], record["place"], record["verdict"], *counts, record["trials"]

    def _open(self) -> Iterator[str]:
        yield self.texts["open"].strip()
        lines = []
        for name in self.texts["decisions"]:
            (path,) = (DOCS / "decisions").glob(f"{name:04d}-*.md")
            title = path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
            lines.append(f"- [{title}](../decisions/{path.name})")
        yield "\n".join(lines)

    def _hours(self) -> Iterator[str]:
        spent = {name: own["seconds"].sum() / 3600 for name, own in self.trials.items()}
        yield (
            f"The kept trials took {sum(spent.values()):.1f} hours, each on one core with other work; trials "
            "on substitutes count here, but not in the last column. What all trials of the paper take, on 64 "
            "and 1,000 cores too, is estimated in [The whole paper](../scale.md#the-whole-paper)."
        )
        parts: dict[str, list[str]] = {}
        for kind in ("tables", "figures"):
            for number in self.texts[kind]:
                for name in self.experiments(kind, number):
                    parts.setdefault(name, []).append(f"{kind[:-1]} {number}")
        rows = []
        for name in (name for name in self.grid if name in self.trials or name in parts):
            run = ["not run", "–", "–", "–"]
            if name in self.trials:
                sizes, kernels = (
                    self.runs(name),
                    sorted(self.trials[name]["kernel_version"].dropna().unique()),
                )
                run = [str(len(sizes)), _span(sizes), ", ".join(kernels), f"{spent[name]:.2f}"]
            rows.append([name, ", ".join(parts.get(name, "–")), *run, self.estimates.get(name, "–")])
        header = ["Experiment", "part of", "runs", "trials of each", "kernel version", "hours spent"]
        yield _markdown([*header, "core hours of all trials"], rows)


def _shown(number: int, picture: Path) -> Iterator[str]:
    """Write a picture, and its caption, which `cbm paper figure --caption` has written beside it."""
    caption = picture.with_suffix(".txt")
    yield f"![Figure {number}, obtained]({picture.name})"
    yield caption.read_text(encoding="utf-8").strip() if caption.exists() else EARLIER


def _yaml(path: Any) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def _numbers(kind: str, place: str) -> list[int]:
    """The numbers of the tables or figures in a place such as ``6.1, tables 2 and 3``."""
    return [int(number) for number in re.findall(r"\d+", place.partition(kind)[2])]


def _commands(experiments: Sequence[str], last: str) -> str:
    return f"    cbm run experiments.yaml {' '.join(experiments)} -j 2\n    {last}"


def _said(texts: Mapping[str, str]) -> list[str]:
    return [f"**{name.title()}.** {texts[name].strip()}" for name in ("agrees", "differs") if name in texts]


def _findings(judged: Sequence[Judged]) -> list[str]:
    if not judged:
        return []
    rows = [[one.finding["says"], one.verdict, one.trials, one.numbers() or "–"] for one in judged]
    return [
        "## Findings",
        _markdown(["The paper states", "here", "trials", "how many comparisons, and values"], rows),
    ]


def _linked(document: Document, pages: Mapping[str, Page]) -> Iterator[str]:
    """Write the scoreboard as one table, linked to the pages, and its notes as a list."""
    sheet = document.sheets[0]
    rows = [row for group in sheet.groups for row in group.rows]
    sheet = replace(sheet, title="", groups=[Group(None, rows)])
    text = Document([sheet]).render("markdown").strip()
    for number in PAPER_TABLES.values():
        if f"table-{number}.md" in pages:
            text = text.replace(f"\n| {number} |", f"\n| [{number}](table-{number}.md) |", 1)
    yield text
    yield _notes(document.notes)


def _notes(notes: Iterable[str]) -> str:
    return "\n".join(f"- {_plain(note)}" for note in notes)


def _plain(note: str) -> str:
    """A note with links to the files that it names."""
    return re.sub(r"\(docs/(?:reproduction/)?([\w./-]+)\)", _link, note)


def _link(found: re.Match) -> str:
    name = found[1]
    if name.startswith("decisions/"):
        (path,) = DOCS.glob(f"{name}*")
        return f"([decision {int(path.name[:4])}](../decisions/{path.name}))"
    return f"([{name.removesuffix('.md')}]({name}))"


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _spelled(axis: str, value: Any) -> str:
    return "–" if pd.isna(value) else value_of(axis, value).unicode


def _heading(column: str) -> str:
    name, _, moment = column.rpartition("_")
    return f"{name.replace('_', ' ')}, {MOMENTS[f'_{moment}']}"


def _mean(values: pd.Series) -> str:
    spread = f" ± {values.std():.4g}" if len(values) > 1 else ""
    return f"{values.mean():.5g}{spread}"


def _span(numbers: pd.Series) -> str:
    low, high = numbers.min(), numbers.max()
    return f"{low}" if low == high else f"{low} to {high}"


def _trials(numbers: pd.Series) -> str:
    return f"{_span(numbers)} trial" + ("s" if numbers.max() > 1 else "")


def main() -> None:
    pages = Reproduction(HERE / "results").pages()
    for path in PAGES.glob("*.md"):
        if re.fullmatch(r"(table|figure)-\d+\.md", path.name) and path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        (PAGES / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

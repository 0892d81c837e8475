"""From a grid file to experiments; everything that is wrong with the file is reported at once."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from cbm_cli.errors import CbmError
from cbm_cli.grid.expand import (
    FIELDS,
    INSTEAD,
    PATHS,
    Choice,
    Effects,
    Given,
    Rules,
    check_contradiction,
    check_ties,
    expand,
    places_of,
    read_choices,
    read_rules,
    report,
    with_field,
)
from cbm_cli.grid.settings import AXES, Experiment, Settings, TableSpec
from cbm_cli.grid.source import Problems, Source, Value, Where, fields_of, shown, unknown
from cbm_cli.grid.values import Count, Frozen, WholeNumber
from cbm_cli.text import did_you_mean

SECTIONS = ("defaults", "default", "groups", "experiments")
RULES = ("zip", "exclude", "when")
NAME = r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}"  # also the name of a folder
_NO_FOLDER = r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?|.*\."  # on Windows
_MACHINE = {"model": {"kind": "rbm", "hidden": 1}, "offsets": "00", "sampler": "CD-1"}
COLUMNS = ("experiment", *Settings(data={"name": "mnist"}, **_MACHINE, learning_rate=1, epochs=1).row())


class Head(Frozen):
    """What an experiment says beside its settings."""

    description: str = Field("", description="One sentence: what to look for")
    trials: Count = Field(25, description="Runs of each cell, each with its own seed")
    seed: WholeNumber = Field(1, description="What the seeds of the trials are made from")
    table: TableSpec = Field(TableSpec(), description="How cbm table lays the experiment out")


KNOWN = (*Head.model_fields, *FIELDS, *RULES)
SETTABLE = ("trials", "seed", *PATHS)


@dataclass(frozen=True)
class Grid:
    """A grid file."""

    path: Path
    experiments: dict[str, Experiment]  # in the order of the file
    groups: dict[str, tuple[str, ...]]  # names of experiments; groups within groups are resolved
    default: tuple[str, ...]  # experiments that run where none is named: those under default:, or all

    def select(self, names: Sequence[str] = ()) -> list[Experiment]:
        """Return the named experiments, those of named groups, or the default ones, each once."""
        known = [*self.experiments, *self.groups]
        for name in names:
            if name not in known:
                hint = did_you_mean(name, known)
                lines = [f"{self.path}: there is no experiment {name!r}{hint if 'mean' in hint else ''}"]
                lines += [f"experiments: {', '.join(self.experiments)}"]
                lines += [f"groups: {', '.join(self.groups)}"] * bool(self.groups)
                raise CbmError("\n".join(lines), "unknown")
        wanted = [one for name in names for one in self.groups.get(name, (name,))] or self.default
        return [self.experiments[name] for name in dict.fromkeys(wanted)]


def read_grid(
    path: Path,
    overrides: Mapping[str, str] = MappingProxyType({}),
    trials: int | None = None,
    selected: Sequence[str] = (),
    text: str | None = None,
) -> Grid:
    """Read, validate and expand a grid file.

    Parameters
    ----------
    overrides : mapping of str to str
        New values of fields, dotted where nested, as YAML text: ``[0.1, 0.05]`` for an axis. An overridden
        field leaves its ``zip``, and ``exclude`` and ``when`` may then match no cell.
    selected : sequence of str
        Experiments and groups that the overrides are for; default: those under ``default:``, or all.
    text : str, optional
        The content, instead of the file's.

    Raises
    ------
    CbmError
        One line for each problem: ``file:line:column: experiment.field: problem; remedy``.
    """
    problems = Problems()
    file = Source.of_file(Path(path), problems) if text is None else Source(text, str(path), problems)
    root = Where(file)
    sections = fields_of(file.data, root, SECTIONS, problems)
    changes = _overrides(overrides, trials, problems)
    defaults = _given(sections.get("defaults", {}), root / "defaults", problems)
    values = _experiments(file.data, sections, root, problems)
    named = fields_of(sections.get("groups", {}), root / "groups", sections.get("groups", {}), problems)
    groups = _groups(named, root / "groups", values, problems)
    default = tuple(values)
    if "default" in sections:
        default = _resolve(sections["default"], root / "default", values, groups, problems)
    changed = {one for name in selected for one in groups.get(name, (name,))} or {*default}
    experiments = {}
    effects: Effects = {}
    for name, value in values.items():
        reader = _Experiment(name, root / "experiments" / name, problems)
        here = changes if name in changed else {}
        experiments[name] = reader.read(value, defaults, here, effects)
    experiments = _linked(experiments, problems)
    _report_effects(effects, problems)
    problems.raise_any()
    return Grid(Path(path), experiments, groups, default)


def _given(value: Value, where: Where, problems: Problems) -> dict[str, Given]:
    """Return the fields of an experiment, or of the defaults, with their places."""
    fields = fields_of(value, where, KNOWN, problems)
    return {name: Given(child, where / name) for name, child in fields.items()}


def _report_effects(effects: Effects, problems: Problems) -> None:
    """Report values that change nothing anywhere; parts of one text, such as two factors, are one value."""
    if not any(effects.values()):
        return
    whole = not problems.count  # only then all experiments that use a default or an override are known
    found: Effects = {}
    for where, reason in effects.items():
        given = where._replace(path=where.reached)
        found[given] = found.get(given, reason) and reason
    for where, reason in found.items():
        if reason and (whole or where.path[:1] == ("experiments",)):
            problems.add(where, reason, "unsuited")


def _overrides(overrides: Mapping[str, str], trials: int | None, problems: Problems) -> dict[str, Given]:
    changes: dict[str, Given] = {}
    for field, text in overrides.items():
        option = Source(text, f"--set {field}", problems)
        where = Where(option)
        if field in SETTABLE:
            before = {name: one.value for name, one in changes.items()}
            check_contradiction(field, where, before, problems)
            changes[field] = Given(option.data, where)
        else:
            problems.add(where, f"unknown field{unknown(field, SETTABLE)}", "unknown")
    if trials is not None:
        changes["trials"] = Given(str(trials), Where(Source(str(trials), "--trials", problems)))
    return changes


def _experiments(data: Value, sections: Mapping[str, Any], root: Where, problems: Problems) -> dict[str, Any]:
    """Return the experiments by name."""
    if not isinstance(data, dict):
        return {}
    value, where = sections.get("experiments"), root / "experiments"
    if not isinstance(value, dict) or not value:
        told = "must name at least one, as in experiments: {first: {data: mnist}}"
        if value is None:
            problems.add(root, told, "missing", inner="experiments")
        else:
            problems.add(where, told, "missing", at="key")
        return {}
    twins: dict[str, str] = {}
    for name in value:
        twin = twins.setdefault(name.lower(), name)
        if not re.fullmatch(NAME, name):
            remedy = "use up to 100 of A-Z a-z 0-9 _ . + -, a letter or digit first"
            problems.add(where / name, f"cannot name an experiment, or a folder; {remedy}", at="key")
        elif re.fullmatch(_NO_FOLDER, name):
            problems.add(where / name, "cannot name a folder on Windows; use another name", at="key")
        elif twin != name:
            same = f"differs from {twin} in capitals only, which macOS and Windows do not tell apart"
            problems.add(where / name, f"{same}; use another name", "conflict", at="key")
    return value


class _Experiment(NamedTuple):
    """An experiment that is being read; after problems it has no cells."""

    name: str
    where: Where
    problems: Problems

    def read(
        self, value: Value, defaults: Mapping[str, Given], changes: Mapping[str, Given], effects: Effects
    ) -> Experiment:
        """Read the fields of the experiment over those of ``defaults``, with what options change."""
        problems, before = self.problems, self.problems.count
        own = _given(value, self.where, problems)
        taken = {*own, *(INSTEAD[field] for field in own if field in INSTEAD)}  # epochs replace its updates
        given = own | {field: default for field, default in defaults.items() if field not in taken}
        for path, change in changes.items():
            given = with_field(given, path, change)
        head = self._head(given)
        rules = read_rules(given, problems)
        for tie in rules.ties:
            tie.fields[:] = [field for field in tie.fields if field not in changes]
        axes = read_choices({field: one for field, one in given.items() if field in FIELDS}, problems)
        if problems.count == before:
            check_ties(rules.ties, axes, problems)
        found: Effects = {}
        cells = expand(axes, rules, self.where, found, problems) if problems.count == before else {}
        overridden = bool(PATHS.keys() & changes.keys())
        if problems.count == before and not overridden:
            _check_matched(rules, own, problems)
        for where, reason in found.items() if problems.count == before else ():
            if not overridden or where.source.name.startswith("--"):  # others are meant for other values
                effects[where] = effects.get(where, reason) and reason
        places = {settings: places_of(cell, self.where) for settings, cell in cells.items()}
        return Experiment(self.name, **dict(head), cells=(*cells,), places=places)

    def _head(self, given: Mapping[str, Given]) -> Head:
        fields = {field: given[field].value for field in Head.model_fields if field in given}
        if "table" in fields:
            fields["table"] = _table(given["table"], self.problems)
        try:
            return Head.model_validate(fields)
        except ValidationError as error:
            places = {field: given[field].where for field in fields}
            report(error, Choice(fields, {"": self.where} | places), self.problems)
            return Head()


def _table(given: Given, problems: Problems) -> dict[str, Any]:
    """Return ``table:`` with single names as lists, after looking the names up."""
    table = fields_of(given.value, given.where, TableSpec.model_fields, problems)
    taken: dict[str, str] = {}
    for name in (axis for axis in AXES if axis in table):
        where = given.where / name
        items = table[name] if isinstance(table[name], list) else [table[name]]
        table[name] = [shown(item).replace(".", "_") for item in items]
        for number, (item, column) in enumerate(zip(items, table[name], strict=True)):
            if column not in COLUMNS:
                told = f"there is no column {shown(item)}{did_you_mean(column, COLUMNS)}"
                problems.add(where / number, told, "unknown")
            elif column in taken:
                told = f"{shown(item)} is among the {taken[column]}; name it once"
                problems.add(where / number, told, "conflict")
            taken.setdefault(column, name)
    return table


def _check_matched(rules: Rules, own: Collection[str], problems: Problems) -> None:
    """A condition that never holds is a typo, unless it comes from the defaults and is meant for others."""
    conditions = {"exclude": rules.exclude, "when": [condition for condition, _ in rules.when]}
    for condition in [one for rule, ones in conditions.items() if rule in own for one in ones]:
        if not condition.matched:
            problems.add(condition.where, "holds for no cell of the grid", "conflict")


def _linked(experiments: dict[str, Experiment], problems: Problems) -> dict[str, Experiment]:
    """Return the experiments, each with those that it starts from; missing ones and circles are problems."""
    places: dict[str, dict[str, Where]] = {}  # of the names of experiments to start from, by experiment
    for name, one in experiments.items():
        starts = ((cell.start_from.experiment, one.places[cell]) for cell in one.cells)
        places[name] = {source: given["start_from.experiment"] for source, given in starts if source}
    for wanted in places.values():
        for source, where in wanted.items():
            if source not in experiments:
                hint = did_you_mean(source, experiments)
                problems.add(where, f"there is no experiment {source[:60]}{hint}", "unknown")
    try:
        order = [name for name in TopologicalSorter(places).static_order() if name in experiments]
    except CycleError as error:
        for source, name in pairwise(error.args[1]):
            told = f"starts from {source}, which starts from {name} in the end"
            problems.add(places[name][source], told, "conflict")
        return experiments
    linked: dict[str, Experiment] = {}
    for name in order:
        own = tuple(linked[source] for source in places[name] if source in linked)
        linked[name] = replace(experiments[name], sources=own)
    return {name: linked[name] for name in experiments}


def _resolve(
    value: Value,
    where: Where,
    experiments: Collection[str],
    groups: Mapping[str, tuple[str, ...]],
    problems: Problems,
) -> tuple[str, ...]:
    """Return the experiments that a name, or a list of names, stands for."""
    items = value if isinstance(value, list) else [value]
    if not items:
        problems.add(where, "names no experiment", "missing")
    found: dict[str, None] = {}
    for number, item in enumerate(items):
        name = shown(item)
        if name in experiments or name in groups:
            found |= dict.fromkeys([name] if name in experiments else groups[name])
        else:
            hint = did_you_mean(name, [*experiments, *groups])
            problems.add(where / number, f"there is no experiment or group {name}{hint}", "unknown")
    return tuple(found)


def _groups(
    values: Mapping[str, Value], where: Where, experiments: Collection[str], problems: Problems
) -> dict[str, tuple[str, ...]]:
    """Return the experiments of each group; groups may hold groups."""
    groups: dict[str, tuple[str, ...]] = dict.fromkeys(values, ())
    inner = {}
    for name, value in values.items():
        items = value if isinstance(value, list) else [value]
        inner[name] = {shown(item) for item in items} & groups.keys()
        if name in experiments:
            problems.add(where / name, "is already the name of an experiment", "conflict", at="key")
    try:
        for name in TopologicalSorter(inner).static_order():
            groups[name] = _resolve(values[name], where / name, experiments, groups, problems)
    except CycleError as error:
        first = next(name for name in values if name in error.args[1])
        problems.add(where / first, "contains itself", "conflict", at="key")
    return groups

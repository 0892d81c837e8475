"""From a grid file to experiments; everything that is wrong with the file is reported at once."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

from pydantic import Field, ValidationError

from cbm_cli.errors import CbmError
from cbm_cli.grid.expand import (
    FIELDS,
    INSTEAD,
    PATHS,
    Cell,
    Effects,
    Rules,
    check_contradiction,
    check_ties,
    expand,
    read_choices,
    read_rules,
    report,
    with_field,
)
from cbm_cli.grid.settings import AXES, Experiment, Settings, TableSpec
from cbm_cli.grid.values import Count, Frozen, WholeNumber
from cbm_cli.grid.yaml_places import (
    Fields,
    Items,
    Mark,
    Place,
    Problems,
    Text,
    Value,
    fields_of,
    load,
    marked,
    parse,
    shown,
    unknown,
)
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
    effects: Effects = {}
    root = load(Path(path), problems) if text is None else parse(text, str(path), problems)
    sections = fields_of(root, SECTIONS, problems)
    changes = _overrides(overrides, trials, problems)
    defaults = fields_of(sections["defaults"], KNOWN, problems) if "defaults" in sections else {}
    values = _experiments(root, sections, problems)
    named = sections.get("groups", {})
    groups = _groups(fields_of(named, named, problems) if "groups" in sections else {}, values, problems)
    default = tuple(values)
    if "default" in sections:
        default = _resolve(sections["default"], values, groups, problems)
    changed = {one for name in selected for one in groups.get(name, (name,))} or {*default}
    experiments = {}
    for name, value in values.items():
        here = changes if name in changed else {}
        experiments[name] = _experiment(name, value, defaults, here, effects, problems)
    experiments = _linked(experiments, values, problems)
    whole = not problems.count  # only then all experiments that use a default or an override are known
    for mark, reason in effects.items():
        if reason and (whole or mark.label.startswith("experiments.")):
            problems.add(mark, reason, kind="unsuited")
    problems.raise_any()
    return Grid(Path(path), experiments, groups, default)


def _overrides(overrides: Mapping[str, str], trials: int | None, problems: Problems) -> dict[str, Value]:
    changes: dict[str, Value] = {}
    for field, text in overrides.items():
        place = Place(f"--set {field}")
        if field in SETTABLE:
            value = parse(text, place.source, problems)
            check_contradiction(field, value, changes, problems)
            changes[field] = value
        else:
            problems.add(Mark(place, place, ""), f"unknown field{unknown(field, SETTABLE)}", kind="unknown")
    if trials is not None:
        changes["trials"] = marked(Text(trials), Mark(Place("--trials"), Place("--trials"), ""))
    return changes


def _experiments(root: Value, sections: Mapping[str, Value], problems: Problems) -> dict[str, Value]:
    """Return the experiments by name."""
    value = sections.get("experiments", root)
    if not isinstance(root, dict):
        return {}
    if value is root or not isinstance(value, dict) or not value:
        mark = value.mark._replace(label="experiments")
        told = "must name at least one, as in experiments: {first: {data: mnist}}"
        problems.add(mark, told, at_key=True, kind="missing")
        return {}
    twins: dict[str, str] = {}
    for name, child in value.items():
        twin = twins.setdefault(name.lower(), name)
        if not re.fullmatch(NAME, name):
            remedy = "use up to 100 of A-Z a-z 0-9 _ . + -, a letter or digit first"
            problems.add(child.mark, f"cannot name an experiment, or a folder; {remedy}", at_key=True)
        elif re.fullmatch(_NO_FOLDER, name):
            problems.add(child.mark, "cannot name a folder on Windows; use another name", at_key=True)
        elif twin != name:
            same = f"differs from {twin} in capitals only, which macOS and Windows do not tell apart"
            problems.add(child.mark, f"{same}; use another name", at_key=True, kind="conflict")
    return value


def _experiment(
    name: str,
    value: Value,
    defaults: Mapping[str, Value],
    changes: Mapping[str, Value],
    effects: Effects,
    problems: Problems,
) -> Experiment:
    """Read one experiment; after problems it has no cells."""
    before = problems.count
    own = fields_of(value, KNOWN, problems)
    taken = {*own, *(INSTEAD[field] for field in own if field in INSTEAD)}  # epochs replace default updates
    given = own | {field: default for field, default in defaults.items() if field not in taken}
    for path, change in changes.items():
        given = with_field(given, path, change)
    head = _head({field: given[field] for field in Head.model_fields if field in given}, value, problems)
    rules = read_rules(given, problems)
    for tie in rules.ties:
        tie.fields = [field for field in tie.fields if field not in changes]
    choices = read_choices({field: one for field, one in given.items() if field in FIELDS}, problems)
    if problems.count == before:
        check_ties(rules.ties, choices, problems)
    found: Effects = {}
    cells = expand(choices, rules, value, found, problems) if problems.count == before else {}
    overridden = bool(PATHS.keys() & changes.keys())
    if problems.count == before:
        if not overridden:
            _check_matched(rules, own, problems)
        for mark, reason in found.items():
            if not overridden or mark.place.source.startswith("--"):  # others are meant for other values
                effects[mark] = effects.get(mark, reason) and reason
    places = {settings: _places(cell, value) for settings, cell in cells.items()}
    return Experiment(name, head.description, head.trials, head.seed, (*cells,), head.table, (), places)


def _places(cell: Cell, experiment: Value) -> dict[str, Place]:
    places = {"": experiment.mark.key}
    for name, choice in cell.items():
        places |= {name: choice.source.mark.place} | {path: mark.place for path, mark in choice.marks}
    return places


def _head(fields: Mapping[str, Value], experiment: Value, problems: Problems) -> Head:
    table = {"table": _table(fields["table"], problems)} if "table" in fields else {}
    given = marked(Fields({**fields, **table}), experiment.mark)
    try:
        return Head.model_validate(given)
    except ValidationError as error:
        report(error, given, problems)
        return Head()


def _table(value: Value, problems: Problems) -> Fields:
    """Return ``table:`` with single names as lists, after looking the names up."""
    table = fields_of(value, TableSpec.model_fields, problems)
    taken: dict[str, str] = {}
    for name in (axis for axis in AXES if axis in table):
        items = table[name] if isinstance(table[name], list) else [table[name]]
        table[name] = marked(Items(shown(item).replace(".", "_") for item in items), table[name].mark)
        for item, column in zip(items, table[name], strict=True):
            if column not in COLUMNS:
                told = f"there is no column {shown(item)}{did_you_mean(column, COLUMNS)}"
                problems.add(item.mark, told, kind="unknown")
            elif column in taken:
                told = f"{shown(item)} is among the {taken[column]}; name it once"
                problems.add(item.mark, told, kind="conflict")
            taken.setdefault(column, name)
    return table


def _check_matched(rules: Rules, own: Mapping[str, Value], problems: Problems) -> None:
    """A condition that never holds is a typo, unless it comes from the defaults and is meant for others."""
    conditions = {"exclude": rules.exclude, "when": [condition for condition, _ in rules.when]}
    for condition in [one for rule, ones in conditions.items() if rule in own for one in ones]:
        if not condition.matched:
            problems.add(condition.mark, "holds for no cell of the grid", kind="conflict")


def _linked(
    experiments: dict[str, Experiment], values: Mapping[str, Value], problems: Problems
) -> dict[str, Experiment]:
    """Return the experiments, each with those that it starts from; missing ones and circles are problems."""
    sources = {
        name: list(dict.fromkeys(filter(None, (cell.start_from.experiment for cell in one.cells))))
        for name, one in experiments.items()
    }

    def mark(name: str) -> Mark:
        value = values[name]
        for field in ("start_from", "experiment"):
            value = value.get(field, value) if isinstance(value, dict) else value
        return value.mark

    for name, wanted in sources.items():
        for source in wanted:
            if source not in experiments:
                hint = did_you_mean(source, experiments)
                problems.add(mark(name), f"there is no experiment {source[:60]}{hint}", kind="unknown")
    try:
        order = [name for name in TopologicalSorter(sources).static_order() if name in experiments]
    except CycleError as error:
        for source, name in pairwise(error.args[1]):
            told = f"starts from {source}, which starts from {name} in the end"
            problems.add(mark(name), told, kind="conflict")
        return experiments
    linked: dict[str, Experiment] = {}
    for name in order:
        own = tuple(linked[source] for source in sources[name] if source in linked)
        linked[name] = replace(experiments[name], sources=own)
    return {name: linked[name] for name in experiments}


def _resolve(
    value: Value, experiments: Collection[str], groups: Mapping[str, tuple[str, ...]], problems: Problems
) -> tuple[str, ...]:
    """Return the experiments that a name, or a list of names, stands for."""
    items = value if isinstance(value, list) else [value]
    if not items:
        problems.add(value.mark, "names no experiment", kind="missing")
    found: dict[str, None] = {}
    for item in items:
        name = shown(item)
        if name in experiments or name in groups:
            found |= dict.fromkeys([name] if name in experiments else groups[name])
        else:
            hint = did_you_mean(name, [*experiments, *groups])
            problems.add(item.mark, f"there is no experiment or group {name}{hint}", kind="unknown")
    return tuple(found)


def _groups(
    values: Mapping[str, Value], experiments: Collection[str], problems: Problems
) -> dict[str, tuple[str, ...]]:
    """Return the experiments of each group; groups may hold groups."""
    groups: dict[str, tuple[str, ...]] = dict.fromkeys(values, ())
    inner = {}
    for name, value in values.items():
        items = value if isinstance(value, list) else [value]
        inner[name] = {shown(item) for item in items} & groups.keys()
        if name in experiments:
            told = "is already the name of an experiment"
            problems.add(value.mark, told, at_key=True, kind="conflict")
    try:
        for name in TopologicalSorter(inner).static_order():
            groups[name] = _resolve(values[name], experiments, groups, problems)
    except CycleError as error:
        first = next(name for name in values if name in error.args[1])
        problems.add(values[first].mark, "contains itself", at_key=True, kind="conflict")
    return groups

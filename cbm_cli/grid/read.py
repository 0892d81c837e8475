"""From a grid file to experiments; everything that is wrong with the file is reported
at once.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import Field, ValidationError

from cbm_cli.datasets.fields import Count, Frozen, WholeNumber
from cbm_cli.errors import CbmError, FieldError
from cbm_cli.grid.expand import (
    FIELDS,
    PATHS,
    Cell,
    Reader,
    in_full,
    over,
)
from cbm_cli.grid.settings import (
    NESTED,
    Experiment,
    Settings,
    TableSpec,
    only_meant,
    parts_of,
)
from cbm_cli.grid.source import (
    Fields,
    Items,
    Problems,
    Value,
    like,
    load,
    read_file,
    shown,
)
from cbm_cli.text import did_you_mean, text_of

SECTIONS = ("defaults", "default", "groups", "experiments")
NAME = r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}"  # also the name of a folder


class Outline(Frozen):
    """The fields of an experiment that are not settings."""

    description: str = Field("", description="One sentence: what to look for")
    trials: Count = Field(25, description="Runs of each cell, each with its own seed")
    seed: WholeNumber = Field(1, description="Determines the seeds of the trials")
    table: TableSpec = Field(
        TableSpec(), description="How cbm table lays the experiment out"
    )


KNOWN = (*Outline.model_fields, *FIELDS, "exclude", "when")
SETTABLE = ("trials", "seed", *PATHS)


@dataclass(frozen=True)
class Grid:
    """A grid file."""

    path: Path
    experiments: dict[str, Experiment]  # in the order of the file
    groups: dict[str, tuple[str, ...]]  # names of experiments
    # experiments that run where none is named: those under default:, or all
    default: tuple[str, ...]

    def select(self, names: Sequence[str] = ()) -> list[Experiment]:
        """Return the named experiments, those of named groups, or the default ones,
        each once.
        """
        members = {name: (name,) for name in self.experiments} | self.groups
        selected: dict[str, None] = {}
        for name in names:
            if name not in members:
                hint = did_you_mean(name, members)
                raise CbmError(f"{self.path}: there is no experiment {name!r}{hint}")
            selected |= dict.fromkeys(members[name])
        return [self.experiments[name] for name in selected or self.default]


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
        New values of fields, dotted where nested, as YAML text; ``exclude`` and
        ``when`` may then match no cell.
    selected : sequence of str
        Experiments and groups that the overrides are for; default: those under
        ``default:``, or all.
    text : str, optional
        Content of the file.

    Raises
    ------
    CbmError
        A line for each problem: ``file:line: experiment.field: problem; remedy``.
    """
    if text is None:
        remedy = "; `cbm init` writes experiments.yaml, a grid to start from"
        text = read_file(path, remedy)
    problems = Problems()
    top = load(text, str(path), problems)
    sections = problems.fields(top, SECTIONS)
    empty = like(top, {})
    nodes = _experiments(top, sections.get("experiments", empty), problems)
    defaults = problems.fields(sections.get("defaults", empty), KNOWN)
    groups = _groups(sections.get("groups", empty), nodes, problems)
    names = {name: (name,) for name in nodes} | groups
    default = tuple(nodes)
    if "default" in sections:
        default = _members(sections["default"], names, problems)
    changes = _changes(overrides, trials, problems)
    changed = {member for name in selected for member in names.get(name, (name,))}
    reader = Reader(problems)
    experiments = {}
    for name, node in nodes.items():
        options = changes if name in (changed or default) else {}
        experiments[name] = _experiment(name, node, defaults, options, reader)
    linked = _linked(experiments, problems)
    is_clean, is_changed = not problems.count, not changes.keys().isdisjoint(PATHS)
    for value, reason in reader.effects.values():
        # A default may be for an experiment that could not be read, and what is in the
        # file is meant for other values than those of options.
        is_meant = is_clean or value.path[:1] == ("experiments",)
        if is_changed:
            is_meant = value.place.source.startswith("--")
        if reason and is_meant:
            problems.add(value, reason)
    problems.raise_any()
    return Grid(Path(path), linked, groups, default)


def _experiments(top: Value, node: Value, problems: Problems) -> Fields:
    """Return the experiments by name; without any, there is nothing to read."""
    if not isinstance(node, Fields) or not node:
        message = "must name at least one, as in experiments: {first: {data: mnist}}"
        problems.add(top, message, "experiments")
        problems.raise_any()
    nodes: Any = node
    first: dict[str, str] = {}  # by the name in small letters
    for name, value in nodes.items():
        twin = first.setdefault(name.lower(), name)
        has_ending = name.endswith((".yaml", ".yml", ".npz"))
        if has_ending or twin != name or not re.fullmatch(NAME, name):
            message = (
                "cannot name an experiment, or a folder; use up to 100 of A-Z a-z 0-9 "
                "_ . + -, a letter or digit first, no .yaml or .npz, and no other name "
                "in other capitals"
            )
            problems.add(value, message)
    return nodes


def _groups(
    node: Value, nodes: Fields, problems: Problems
) -> dict[str, tuple[str, ...]]:
    """Return the members of each group."""
    names = node if isinstance(node, Fields) else ()
    groups = problems.fields(node, names)
    experiments = {name: (name,) for name in nodes}
    for name in groups.keys() & nodes.keys():
        problems.add(groups[name], "is already the name of an experiment")
    return {
        name: _members(members, experiments, problems)
        for name, members in groups.items()
    }


def _members(
    node: Value, names: Mapping[str, tuple[str, ...]], problems: Problems
) -> tuple[str, ...]:
    """Return the experiments of a name, or of a list of names."""
    if not node:
        problems.add(node, "names no experiment")
    members: dict[str, None] = {}
    for item in node if isinstance(node, Items) else [node]:
        if isinstance(item, str) and item in names:
            members |= dict.fromkeys(names[item])
        else:
            hint = did_you_mean(str(item), names)
            message = f"there is no experiment or group {shown(item)}{hint}"
            problems.add(item, message)
    return tuple(members)


def _changes(
    overrides: Mapping[str, str], trials: int | None, problems: Problems
) -> dict[str, Value]:
    """Return what options give to fields, by path."""
    changes: dict[str, Value] = {}
    for name, text in overrides.items():
        value = load(text, f"--set {name}", problems)
        try:
            path = only_meant(name, SETTABLE)
        except FieldError as error:
            problems.blame(error, value)
            continue
        undone = [
            earlier for earlier in changes if f"{earlier}.".startswith(f"{path}.")
        ]
        if undone:
            problems.add(value, f"undoes {undone[0]}, which is set before it; set one")
        changes[path] = value
    if trials is not None:
        changes["trials"] = load(str(trials), "--trials", problems)
    return changes


def _with(old: Value, path: str, new: Value) -> Value:
    """Return the values of a nested field, all with another value of one part."""
    name, _, part = path.partition(".")
    if isinstance(old, Items):
        return like(old, [_with(item, path, new) for item in old])
    return like(old, {**in_full(name, old), part: new})


def _experiment(
    name: str,
    node: Value,
    defaults: Fields,
    changes: Mapping[str, Value],
    reader: Reader,
) -> Experiment:
    """Read one experiment over the defaults, with what options change; after problems
    it has no cells.
    """
    problems, before = reader.problems, reader.problems.count
    own = problems.fields(node, KNOWN)
    fields = own | over(defaults, own)
    notes = _replaced(name, own, defaults, of="defaults")
    notes += _replaced(name, changes, fields, of="the grid")
    fields = over(fields, {path: changes[path] for path in changes if "." not in path})
    for path, value in changes.items():
        field, _, part = path.partition(".")
        if part:
            fields[field] = _with(fields.get(field, like(value, {})), path, value)
    outline = _outline(fields, node, problems)
    lists = {rule: fields.get(rule, like(node, [])) for rule in ("exclude", "when")}
    for value in lists.values():
        if not isinstance(value, Items):
            problems.add(value, f"must be a list, not {shown(value)}")
            return Experiment(name, **dict(outline), cells=())
    for item in lists["when"]:
        set_there = item.get("set") if isinstance(item, Fields) else None
        if isinstance(set_there, Fields):
            notes += _replaced(name, set_there, fields, of="the experiment")
    exclude = [reader.condition(item) for item in lists["exclude"]]
    when = [reader.change(item) for item in lists["when"]]
    axes = {}
    for field, value in fields.items():
        if field in FIELDS:
            axes[field] = reader.choices(field, value)
    cells: dict[Settings, Cell] = {}
    if problems.count == before:
        cells = reader.expand(axes, exclude, when, node)
        if not cells and problems.count == before:
            problems.add(node, "has no cell left; exclude drops them all")
    if cells and changes.keys().isdisjoint(PATHS):
        rules = {"exclude": exclude, "when": [change.condition for change in when]}
        for rule, conditions in rules.items():
            for condition in conditions:
                if rule in own and not condition.matched:
                    problems.add(condition.node, "holds for no cell of the grid")
        _check_choice(outline.table, cells, fields, problems)
    return Experiment(
        name,
        **dict(outline),
        cells=tuple(cells),
        value_of=partial(_value_of, cells, fields, node),
        notes=notes,
    )


def _replaced(
    name: str, own: Mapping[str, Value], defaults: Mapping[str, Value], of: str
) -> tuple[str, ...]:
    """Return a note on each field of which an experiment, a condition or an option
    leaves out parts that ``defaults`` give, which messages call ``of``.
    """
    notes = []
    for field in own.keys() & defaults.keys() & NESTED.keys() - {"data", "model"}:
        if isinstance(own[field], Items):
            continue
        parts = in_full(field, own[field])
        lost = []
        for part, value in in_full(field, defaults[field]).items():
            if part not in parts:
                lost.append(f"{part}: {shown(value)}")
        if parts and lost:
            notes.append(
                f"{own[field].place}: {name}.{field}: replaces the whole field of "
                f"{of}, also {', '.join(lost)}"
            )
    return tuple(sorted(notes))


def _check_choice(
    table: TableSpec,
    cells: Collection[Settings],
    fields: Mapping[str, Value],
    problems: Problems,
) -> None:
    """Add a problem for each setting to choose that has the same value in all cells."""
    rows = [cell.row() for cell in cells]
    for setting in table.choose:
        columns = parts_of(setting)
        values = {tuple(text_of(row[column]) for column in columns) for row in rows}
        if len(values) == 1:
            node: Any = fields["table"]
            message = f"{columns[0]} has one value, and there is nothing to choose"
            problems.add(node["choose"], f"{message}; give it several")


def _value_of(
    cells: Mapping[Settings, Cell],
    fields: Mapping[str, Value],
    node: Value,
    cell: Settings,
    path: str,
) -> Value:
    """Return what the grid gives to a field of a cell; the experiment, if nothing."""
    field, _, part = path.partition(".")
    if field in cells[cell]:
        value = cells[cell][field].source
    elif field in fields:
        value = fields[field]
    else:
        return node
    return value.get(part, value) if isinstance(value, Fields) else value


def _outline(fields: Mapping[str, Value], node: Value, problems: Problems) -> Outline:
    names = [name for name in fields if name in Outline.model_fields]
    values = like(node, {name: fields[name] for name in names})
    if isinstance(values.get("table"), Fields):
        values["table"] = problems.fields(values["table"], TableSpec.model_fields)
    try:
        return Outline.model_validate(values)
    except ValidationError as error:
        problems.report(error, values)
        return Outline()


def _linked(
    experiments: dict[str, Experiment], problems: Problems
) -> dict[str, Experiment]:
    """Return the experiments, each with those that it starts from; missing ones and
    circles are problems.
    """
    sources = {name: _sources_of(experiments[name]) for name in experiments}
    for source_places in sources.values():
        for source, place in source_places.items():
            if source not in experiments:
                hint = did_you_mean(source, experiments)
                problems.add(place, f"there is no experiment {source[:60]}{hint}")
    try:
        order = [*TopologicalSorter(sources).static_order()]
    except CycleError as error:
        first, second, *_ = circle = error.args[1]
        message = f"starts from itself in the end: {' before '.join(circle)}"
        problems.add(sources[second][first], message)
        return experiments
    linked: dict[str, Experiment] = {}
    for name in order:
        if name in experiments:
            known = [linked[source] for source in sources[name] if source in linked]
            linked[name] = replace(experiments[name], sources=tuple(known))
    return {name: linked[name] for name in experiments}


def _sources_of(experiment: Experiment) -> dict[str, Value]:
    """Return the experiments that one starts from, with the places of their names."""
    places = {}
    for cell in experiment.cells:
        source = cell.start_from.experiment
        value = experiment.value_of(cell, "start_from.experiment")
        if source and value is not None:
            places[source] = value
    return places

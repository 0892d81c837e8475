"""From a grid file to experiments; everything that is wrong with the file is reported
at once.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import Field, ValidationError

from cbm_cli.datasets.fields import Count, WholeNumber
from cbm_cli.errors import CbmError
from cbm_cli.grid.expand import FIELDS, INSTEAD, PATHS, Cell, Condition, Reader
from cbm_cli.grid.fields import Frozen
from cbm_cli.grid.settings import (
    NESTED,
    Experiment,
    Settings,
    TableSpec,
    meant,
    parts_of,
)
from cbm_cli.grid.source import (
    Fields,
    Items,
    Problems,
    Scalar,
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
    default: tuple[
        str, ...
    ]  # experiments that run where none is named: those under default:, or all

    def select(self, names: Sequence[str] = ()) -> list[Experiment]:
        """Return the named experiments, those of named groups, or the default ones,
        each once.
        """
        selected: dict[str, None] = {}
        for name in names:
            if name in self.groups:
                selected |= dict.fromkeys(self.groups[name])
            elif name in self.experiments:
                selected[name] = None
            else:
                raise CbmError(self._unknown(name))
        return [self.experiments[name] for name in selected or self.default]

    def _unknown(self, name: str) -> str:
        hint = did_you_mean(name, [*self.experiments, *self.groups])
        if "mean" not in hint:
            hint = ""
        message = f"{self.path}: there is no experiment {name!r}{hint}"
        message += f"\nexperiments: {', '.join(self.experiments)}"
        if self.groups:
            message += f"\ngroups: {', '.join(self.groups)}"
        return message


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
    changed: dict[str, None] = {}
    for name in selected:
        changed |= dict.fromkeys(groups.get(name, (name,)))
    reader = Reader(problems)
    experiments = {}
    for name, node in nodes.items():
        is_changed = name in (changed or default)
        options = changes if is_changed else {}
        experiments[name] = _experiment(name, node, defaults, options, reader)
    linked = _linked(experiments, problems)
    is_clean = not problems.count
    for value, reason in reader.effects.values():
        # A default may be for an experiment that could not be read.
        if reason and (is_clean or value.path[:1] == ("experiments",)):
            problems.add(value, reason)
    problems.raise_any()
    return Grid(Path(path), linked, groups, default)


def _experiments(top: Value, node: Value, problems: Problems) -> Fields:
    """Return the experiments by name; without any, there is nothing to read."""
    if not isinstance(node, Fields) or not node:
        if isinstance(top, Fields):
            message = (
                "must name at least one, as in experiments: {first: {data: mnist}}"
            )
            problems.add(node, message, "" if node.path else "experiments")
        problems.raise_any()
    nodes: Any = node
    first: dict[str, str] = {}  # by the name in small letters
    for name, value in nodes.items():
        twin = first.setdefault(name.lower(), name)
        if not re.fullmatch(NAME, name) or name.endswith((".yaml", ".yml", ".npz")):
            message = (
                "cannot name an experiment, or a folder; use up to 100 of A-Z a-z 0-9 "
                "_ . + -, a letter or digit first, no .yaml or .npz"
            )
            problems.add(value, message)
        elif twin != name:
            message = (
                f"differs from {twin} in capitals only, which macOS and Windows do "
                "not tell apart; use another name"
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
        paths = meant(name, SETTABLE)
        if not paths:
            hint = did_you_mean(name, SETTABLE, 0.7)
            problems.add(value, f"unknown field{hint}")
            continue
        if len(paths) > 1:
            message = f"several fields are called so; name one of {', '.join(paths)}"
            problems.add(value, message)
            continue
        path = paths[0]
        undone = [earlier for earlier in changes if _undoes(path, earlier)]
        if undone:
            remedy = "which is set before it; set one of them"
            problems.add(value, f"undoes {undone[0]}, {remedy}")
            continue
        changes[path] = value
    if trials is not None:
        changes["trials"] = load(str(trials), "--trials", problems)
    return changes


def _undoes(path: str, earlier: str) -> bool:
    """Whether setting a field undoes that another one, or a part of it, was set."""
    is_within = f"{earlier}.".startswith(f"{path}.")
    return is_within or earlier == INSTEAD.get(path)


def _with(fields: Mapping[str, Value], path: str, value: Value) -> dict[str, Value]:
    """Return the fields of an experiment with one of them replaced, or with one part of
    it.
    """
    name, _, part = path.partition(".")

    def changed(old: Value) -> Value:
        if isinstance(old, Items):
            return like(old, [changed(item) for item in old])
        parts = old if isinstance(old, Fields) else NESTED[name].long(old)
        return like(old, {**parts, part: value})

    result = {key: old for key, old in fields.items() if key != INSTEAD.get(name)}
    result[name] = changed(fields.get(name, like(value, {}))) if part else value
    return result


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
    problems, before, effects = reader.problems, reader.problems.count, reader.effects
    own = problems.fields(node, KNOWN)
    fields = _over_defaults(own, defaults)
    notes = _replaced(name, own, defaults)
    for path, value in changes.items():
        fields = _with(fields, path, value)
    outline = _outline(fields, node, problems)
    lists = {rule: fields.get(rule, like(node, [])) for rule in ("exclude", "when")}
    for value in lists.values():
        if not isinstance(value, Items):
            problems.add(value, f"must be a list, not {shown(value)}")
            return Experiment(name, **dict(outline), cells=())
    exclude = [reader.condition(item) for item in lists["exclude"]]
    when = [reader.change(item) for item in lists["when"]]
    axes = {}
    for field, value in fields.items():
        if field in FIELDS:
            axes[field] = reader.choices(field, value)
    reader.effects = dict(effects)
    cells: dict[Settings, Cell] = {}
    if problems.count == before:
        cells = reader.expand(axes, exclude, when, node)
    if set(PATHS) & changes.keys():
        # What is in the file is meant for other values than those of options.
        of_options = {}
        for key, effect in reader.effects.items():
            if effect[0].place.source.startswith("--"):
                of_options[key] = effect
        reader.effects = effects | of_options
    elif cells:
        rules = {"exclude": exclude, "when": [change.condition for change in when]}
        for rule, conditions in rules.items():
            if rule in own:
                _check_conditions(conditions, problems)
        _check_choice(outline.table, cells, fields, problems)
    if problems.count > before:
        reader.effects = effects
    return Experiment(
        name,
        **dict(outline),
        cells=tuple(cells),
        value_of=partial(_value_of, cells, fields, node),
        notes=notes,
    )


def _over_defaults(own: Fields, defaults: Fields) -> dict[str, Value]:
    """Return the fields of an experiment, and the default ones that they do not
    replace.
    """
    fields: dict[str, Value] = dict(own)
    replaced = {INSTEAD[field] for field in own if field in INSTEAD}
    for field, value in defaults.items():
        if field not in own and field not in replaced:
            fields[field] = value
    return fields


def _replaced(name: str, own: Fields, defaults: Fields) -> tuple[str, ...]:
    """Return a note on each field of which an experiment leaves out parts that the
    defaults give.
    """
    notes = []
    for field in own.keys() & defaults.keys():
        parts, default = _long(field, own[field]), _long(field, defaults[field])
        left_out = [part for part in default if part not in parts]
        if field in ("data", "model") or not parts or not left_out:
            continue
        words = [f"{part}: {shown(default[part])}" for part in left_out]
        place = f"{own[field].place}: {name}.{field}"
        notes.append(
            f"{place}: replaces the whole field of defaults, also {', '.join(words)}"
        )
    return tuple(sorted(notes))


def _long(field: str, value: Value) -> Mapping[str, Value]:
    """Return the parts that a value gives to a nested field; of a list, none."""
    if isinstance(value, Fields):
        return value if field in NESTED or field == "table" else {}
    if isinstance(value, Scalar) and field in NESTED and NESTED[field].short:
        return NESTED[field].long(value)
    return {}


def _check_conditions(conditions: Iterable[Condition], problems: Problems) -> None:
    for condition in conditions:
        if not condition.matched:
            problems.add(condition.node, "holds for no cell of the grid")


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
        varying = [
            column
            for column in columns
            if len({text_of(row[column]) for row in rows}) > 1
        ]
        if not varying:
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
    linked: dict[str, Experiment] = {}
    try:
        for name in TopologicalSorter(sources).static_order():
            if name in experiments:
                known = [source for source in sources[name] if source in linked]
                first = tuple(linked[source] for source in known)
                linked[name] = replace(experiments[name], sources=first)
    except CycleError as error:
        for source, name in pairwise(error.args[1]):
            message = f"starts from {source}, which starts from {name} in the end"
            problems.add(sources[name][source], message)
        return experiments
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

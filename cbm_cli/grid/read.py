"""From a grid file to experiments; everything that is wrong with the file is reported
at once.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import Field, ValidationError

from cbm_cli.datasets.fields import Count, WholeNumber
from cbm_cli.errors import CbmError
from cbm_cli.grid.expand import FIELDS, INSTEAD, PATHS, Reader
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
        known = [*self.experiments, *self.groups]
        for name in names:
            if name not in known:
                hint = did_you_mean(name, known)
                lines = [
                    (
                        f"{self.path}: there is no experiment "
                        f"{name!r}{hint if 'mean' in hint else ''}"
                    )
                ]
                lines += [f"experiments: {', '.join(self.experiments)}"]
                lines += [f"groups: {', '.join(self.groups)}"] * bool(self.groups)
                raise CbmError("\n".join(lines))
        wanted = [
            one for name in names for one in self.groups.get(name, (name,))
        ] or self.default
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
    problems = Problems()
    remedy = "; `cbm init` writes experiments.yaml, a grid to start from"
    top = load(read_file(path, remedy) if text is None else text, str(path), problems)
    sections, none = problems.fields(top, SECTIONS), like(top, {})
    nodes = _experiments(top, sections.get("experiments", none), problems)
    defaults = problems.fields(sections.get("defaults", none), KNOWN)
    section = sections.get("groups", none)
    named = problems.fields(section, section if isinstance(section, Fields) else ())
    for name in named.keys() & nodes.keys():
        problems.add(named[name], "is already the name of an experiment")
    single = {name: (name,) for name in nodes}
    groups = {name: _members(node, single, problems) for name, node in named.items()}
    default = sections.get("default")
    bare = (
        (*nodes,) if default is None else _members(default, single | groups, problems)
    )
    changes = _changes(overrides, trials, problems)
    changed = {one for name in selected for one in groups.get(name, (name,))} or {*bare}
    reader = Reader(problems)
    experiments = {
        name: _experiment(
            name, node, defaults, changes if name in changed else {}, reader
        )
        for name, node in nodes.items()
    }
    linked, clean = _linked(experiments, problems), not problems.count
    for value, reason in reader.effects.values():
        if reason and (
            clean or value.path[:1] == ("experiments",)
        ):  # else another experiment may need it
            problems.add(value, reason)
    problems.raise_any()
    return Grid(Path(path), linked, groups, bare)


def _experiments(top: Value, node: Value, problems: Problems) -> Fields:
    """Return the experiments by name; without any, there is nothing to read."""
    if not isinstance(node, Fields) or not node:
        if isinstance(top, Fields):
            told = "must name at least one, as in experiments: {first: {data: mnist}}"
            problems.add(node, told, "" if node.path else "experiments")
        problems.raise_any()
    twins: dict[str, str] = {}
    nodes: Any = node
    for name, value in nodes.items():
        if not re.fullmatch(NAME, name) or name.endswith((".yaml", ".yml", ".npz")):
            remedy = (
                "use up to 100 of A-Z a-z 0-9 _ . + -, a letter or digit first, "
                "no .yaml or .npz"
            )
            problems.add(value, f"cannot name an experiment, or a folder; {remedy}")
        elif (twin := twins.setdefault(name.lower(), name)) != name:
            same = (
                f"differs from {twin} in capitals only, which macOS and Windows do "
                "not tell apart"
            )
            problems.add(value, f"{same}; use another name")
    return nodes


def _members(
    node: Value, known: Mapping[str, tuple[str, ...]], problems: Problems
) -> tuple[str, ...]:
    """Return the experiments of a name, or of a list of names."""
    if not node:
        problems.add(node, "names no experiment")
    found = dict[str, None]()
    for item in node if isinstance(node, Items) else [node]:
        if not isinstance(item, str) or item not in known:
            told = (
                "there is no experiment or group "
                f"{shown(item)}{did_you_mean(str(item), known)}"
            )
            problems.add(item, told)
        else:
            found |= dict.fromkeys(known[item])
    return (*found,)


def _changes(
    overrides: Mapping[str, str], trials: int | None, problems: Problems
) -> dict[str, Value]:
    changes: dict[str, Value] = {}
    for name, text in overrides.items():
        value = load(text, f"--set {name}", problems)
        path, *others = meant(name, SETTABLE) or [""]
        undone = [
            one
            for one in changes
            if f"{one}.".startswith(f"{path}.") or one == INSTEAD.get(path)
        ]
        if not path:
            problems.add(value, f"unknown field{did_you_mean(name, SETTABLE, 0.7)}")
        elif others:
            problems.add(
                value,
                (
                    "several fields are called so; name one of "
                    f"{', '.join((path, *others))}"
                ),
            )
        elif undone:
            problems.add(
                value, f"undoes {undone[0]}, which is set before it; set one of them"
            )
        else:
            changes[path] = value
    return changes | (
        {"trials": load(str(trials), "--trials", problems)}
        if trials is not None
        else {}
    )


def _with(given: Mapping[str, Value], path: str, value: Value) -> dict[str, Value]:
    """Return the fields of an experiment with one of them replaced, or with one part of
    it.
    """
    name, _, part = path.partition(".")

    def changed(old: Value) -> Value:
        if isinstance(old, Items):
            return like(old, [changed(one) for one in old])
        return like(
            old,
            {
                **(old if isinstance(old, Fields) else NESTED[name].long(old)),
                part: value,
            },
        )

    whole = changed(given.get(name, like(value, {}))) if part else value
    return {one: old for one, old in given.items() if one != INSTEAD.get(name)} | {
        name: whole
    }


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
    taken = {
        *own,
        *(INSTEAD[field] for field in own if field in INSTEAD),
    }  # epochs replace default updates
    given = own | {
        field: value for field, value in defaults.items() if field not in taken
    }
    for path, value in changes.items():
        given = _with(given, path, value)
    head = _head(given, node, problems)
    rules = {rule: given.get(rule, like(node, [])) for rule in ("exclude", "when")}
    for value in (value for value in rules.values() if not isinstance(value, Items)):
        problems.add(value, f"must be a list, not {shown(value)}")
        return Experiment(name, **dict(head), cells=())
    exclude = [reader.condition(item) for item in rules["exclude"]]
    when = [reader.change(item) for item in rules["when"]]
    axes = {
        field: reader.choices(field, value)
        for field, value in given.items()
        if field in FIELDS
    }
    overridden = bool({*PATHS} & changes.keys())
    reader.effects = dict(effects)
    cells = reader.expand(axes, exclude, when, node) if problems.count == before else {}
    table = head.table
    if overridden:  # what is in the file is meant for other values
        options = {
            key: one
            for key, one in reader.effects.items()
            if one[0].place.source.startswith("--")
        }
        reader.effects = effects | options
    elif cells:
        conditions = {"exclude": exclude, "when": [condition for condition, _ in when]}
        for condition in (
            one for rule, some in conditions.items() if rule in own for one in some
        ):
            if not condition.matched:
                problems.add(condition.node, "holds for no cell of the grid")
        rows = [cell.row() for cell in cells]
        for setting in table.choose:
            columns = parts_of(setting)
            if all(
                len({text_of(row[column]) for row in rows}) == 1 for column in columns
            ):
                message = f"{columns[0]} has one value, and there is nothing to choose"
                problems.add(given["table"]["choose"], f"{message}; give it several")
    if problems.count > before:
        reader.effects = effects

    def value_of(cell: Settings, path: str) -> Value:
        field, _, part = path.partition(".")
        value = (
            cells[cell][field].given if field in cells[cell] else given.get(field, node)
        )
        return (
            value.get(part, value)
            if isinstance(value, Fields) and value is not node
            else value
        )

    return Experiment(
        name, **dict(head) | {"table": table}, cells=(*cells,), value_of=value_of
    )


def _head(given: Mapping[str, Value], node: Value, problems: Problems) -> Outline:
    told = like(
        node,
        {
            field: value
            for field, value in given.items()
            if field in Outline.model_fields
        },
    )
    if isinstance(told.get("table"), Fields):
        told["table"] = problems.fields(told["table"], TableSpec.model_fields)
    try:
        return Outline.model_validate(told)
    except ValidationError as error:
        problems.report(error, told)
        return Outline()


def _linked(
    experiments: dict[str, Experiment], problems: Problems
) -> dict[str, Experiment]:
    """Return the experiments, each with those that it starts from; missing ones and
    circles are problems.
    """
    places: dict[str, dict[str, Value]] = {
        name: {} for name in experiments
    }  # of the names of the others
    for name, one in experiments.items():
        for cell in one.cells:
            source, value = (
                cell.start_from.experiment,
                one.value_of(cell, "start_from.experiment"),
            )
            if source and value is not None:
                places[name][source] = value
                if source not in experiments:
                    hint = did_you_mean(source, experiments)
                    problems.add(value, f"there is no experiment {source[:60]}{hint}")
    linked: dict[str, Experiment] = {}
    try:
        for name in TopologicalSorter(places).static_order():
            if name in experiments:
                sources = tuple(
                    linked[source] for source in places[name] if source in linked
                )
                linked[name] = replace(experiments[name], sources=sources)
    except CycleError as error:
        for source, name in pairwise(error.args[1]):
            problems.add(
                places[name][source],
                f"starts from {source}, which starts from {name} in the end",
            )
        return experiments
    return {name: linked[name] for name in experiments}

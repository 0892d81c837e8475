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
    Choice,
    Effects,
    Given,
    Rules,
    expand,
    places_of,
    read_choices,
    read_rules,
    report,
    with_field,
)
from cbm_cli.grid.settings import AXES, Experiment, Settings, TableSpec
from cbm_cli.grid.source import Node, Problems, Source, unknown
from cbm_cli.grid.values import Count, Frozen, WholeNumber
from cbm_cli.text import did_you_mean, text_of

SECTIONS = ("defaults", "default", "groups", "experiments")
RULES = ("exclude", "when")
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
        New values of fields, dotted where nested, as YAML text; ``exclude`` and ``when`` may then match no
        cell.
    selected : sequence of str
        Experiments and groups that the overrides are for; default: those under ``default:``, or all.
    text : str, optional
        Content of the file.

    Raises
    ------
    CbmError
        A line for each problem: ``file:line:column: experiment.field: problem; remedy``.
    """
    problems = Problems()
    top = (Source(text, str(path), problems) if text is not None else _source_of(path, problems)).top
    sections, changes = top.fields(SECTIONS), _overrides(overrides, trials, problems)
    defaults = sections["defaults"].fields(KNOWN) if "defaults" in sections else {}
    nodes = _experiments(top, sections)
    groups = _groups(sections["groups"], nodes) if "groups" in sections else {}
    default = _resolve(sections["default"], nodes, groups) if "default" in sections else tuple(nodes)
    changed = {one for name in selected for one in groups.get(name, (name,))} or {*default}
    effects: Effects = {}
    experiments = {
        name: _experiment(name, node, defaults, changes if name in changed else {}, effects)
        for name, node in nodes.items()
    }
    linked = _linked(experiments)
    _report_effects(effects, problems)
    return Grid(Path(path), linked, groups, default)


def _source_of(path: str | Path, problems: Problems) -> Source:
    return Source.of_file(Path(path), problems, "; `cbm init` writes experiments.yaml, a grid to start from")


def _overrides(overrides: Mapping[str, str], trials: int | None, problems: Problems) -> dict[str, Node]:
    changes: dict[str, Node] = {}
    for field, text in overrides.items():
        option = Source(text, f"--set {field}", problems).top
        undone = [one for one in changes if one.startswith(f"{field}.") or one == INSTEAD.get(field)]
        if field not in SETTABLE:
            option.wrong(f"unknown field{unknown(field, SETTABLE)}", "unknown")
        elif undone:
            option.wrong(f"undoes {undone[0]}, which is set before it; set one of them", "conflict")
        else:
            changes[field] = option
    if trials is not None:
        changes["trials"] = Source(str(trials), "--trials", problems).top
    return changes


def _experiments(top: Node, sections: Mapping[str, Node]) -> dict[str, Node]:
    """Return the experiments by name."""
    node = sections.get("experiments", top)
    if not isinstance(top.value, dict):
        return {}
    if node is top or not isinstance(node.value, dict) or not node.value:
        told = "must name at least one, as in experiments: {first: {data: mnist}}"
        node.wrong(told, "missing", at="key", inner="experiments" if node is top else "")
        return {}
    twins: dict[str, str] = {}
    for name in node.value:
        twin = twins.setdefault(name.lower(), name)
        if not re.fullmatch(NAME, name):
            remedy = "use up to 100 of A-Z a-z 0-9 _ . + -, a letter or digit first"
            (node / name).wrong(f"cannot name an experiment, or a folder; {remedy}", at="key")
        elif re.fullmatch(_NO_FOLDER, name):
            (node / name).wrong("cannot name a folder on Windows; use another name", at="key")
        elif twin != name:
            same = f"differs from {twin} in capitals only, which macOS and Windows do not tell apart"
            (node / name).wrong(f"{same}; use another name", "conflict", at="key")
    return {name: node / name for name in node.value}


def _experiment(
    name: str, node: Node, defaults: Mapping[str, Node], changes: Mapping[str, Node], effects: Effects
) -> Experiment:
    """Read one experiment over the defaults, with what options change; after problems it has no cells."""
    problems, before = node.source.problems, node.source.problems.count
    own = node.fields(KNOWN)
    taken = {*own, *(INSTEAD[field] for field in own if field in INSTEAD)}  # epochs replace default updates
    inherited = {field: default for field, default in defaults.items() if field not in taken}
    given = {field: Given(one) for field, one in (own | inherited).items()}
    for path, change in changes.items():
        given = with_field(given, path, change)
    head = _head(given, node)
    rules = read_rules(given)
    axes = read_choices({field: one for field, one in given.items() if field in FIELDS})
    found: Effects = {}
    cells = expand(axes, rules, node, found) if problems.count == before else {}
    overridden = bool(PATHS.keys() & changes.keys())
    if problems.count == before and not overridden:
        _check_matched(rules, own)
    for one, reason in found.items() if problems.count == before else ():
        if not overridden or one.source is not node.source:  # others are meant for other values
            effects[one] = effects.get(one, reason) and reason
    if cells and not overridden:
        _check_chosen(head.table.choose, cells, given)
    return Experiment(name, **dict(head), cells=(*cells,), places=lambda cell: places_of(cells[cell], node))


def _check_chosen(names: Sequence[str], cells: Collection[Settings], given: Mapping[str, Given]) -> None:
    """Refuse to choose the value of a setting of which there is one."""
    rows = [cell.row() for cell in cells] if names else []
    for name in names:
        if len({text_of(row.get(name)) for row in rows}) == 1:
            told = f"{name} has one value, and there is nothing to choose; give it several"
            (given["table"].node / "choose").wrong(told, "unsuited")


def _report_effects(effects: Effects, problems: Problems) -> None:
    """Report values that change nothing anywhere, unless other problems hide where they would; raise all."""
    whole = not problems.count  # only then all experiments that use a default or an override are known
    for node, reason in effects.items():
        if reason and (whole or node.path[:1] == ("experiments",)):
            node.wrong(reason, "unsuited")
    problems.raise_any()


def _head(given: Mapping[str, Given], experiment: Node) -> Head:
    nodes = {field: given[field].node for field in Head.model_fields if field in given}
    fields = {field: node.value for field, node in nodes.items()}
    if "table" in nodes:
        fields["table"] = _table(nodes["table"])
    try:
        return Head.model_validate(fields)
    except ValidationError as error:
        report(error, Choice(fields, {"": experiment} | nodes))
        return Head()


def _table(node: Node) -> TableSpec:
    """Return what ``table:`` says; a name may stand alone instead of in a list."""
    fields, taken = node.fields(TableSpec.model_fields), dict[str, str]()
    table = {name: one.value for name, one in fields.items()}
    for name in (axis for axis in (*AXES, "choose") if axis in fields):
        table[name] = [item.shown.replace(".", "_") for item in fields[name].items]
        for item, column in zip(fields[name].items, table[name], strict=True):
            if column not in COLUMNS:
                item.wrong(f"there is no column {item.shown}{did_you_mean(column, COLUMNS)}", "unknown")
            elif column in taken:
                item.wrong(f"{item.shown} is among the {taken[column]}; name it once", "conflict")
            taken.setdefault(column, name)
    try:
        return TableSpec.model_validate(table)
    except ValidationError as error:
        report(error, Choice(table, {"": node} | fields))
        return TableSpec()


def _check_matched(rules: Rules, own: Collection[str]) -> None:
    """A condition that never holds is a typo, unless it comes from the defaults and is meant for others."""
    conditions = {"exclude": rules.exclude, "when": [condition for condition, _ in rules.when]}
    for condition in [one for rule, ones in conditions.items() if rule in own for one in ones]:
        if not condition.matched:
            condition.node.wrong("holds for no cell of the grid", "conflict")


def _linked(experiments: dict[str, Experiment]) -> dict[str, Experiment]:
    """Return the experiments, each with those that it starts from; missing ones and circles are problems."""
    places: dict[str, dict[str, Node]] = {}  # of the names of experiments to start from, by experiment
    for name, one in experiments.items():
        starts = {cell.start_from.experiment: cell for cell in one.cells if cell.start_from.experiment}
        places[name] = {source: one.places(cell)["start_from.experiment"] for source, cell in starts.items()}
    for wanted in places.values():
        for source, node in wanted.items():
            if source not in experiments:
                hint = did_you_mean(source, experiments)
                node.wrong(f"there is no experiment {source[:60]}{hint}", "unknown")
    try:
        order = [name for name in TopologicalSorter(places).static_order() if name in experiments]
    except CycleError as error:
        for source, name in pairwise(error.args[1]):
            told = f"starts from {source}, which starts from {name} in the end"
            places[name][source].wrong(told, "conflict")
        return experiments
    linked: dict[str, Experiment] = {}
    for name in order:
        own = tuple(linked[source] for source in places[name] if source in linked)
        linked[name] = replace(experiments[name], sources=own)
    return {name: linked[name] for name in experiments}


def _resolve(
    node: Node, experiments: Collection[str], groups: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """Return the experiments that a name, or a list of names, stands for."""
    if not node.items:
        node.wrong("names no experiment", "missing")
    found: dict[str, None] = {}
    for item in node.items:
        name = item.shown
        if name in experiments or name in groups:
            found |= dict.fromkeys([name] if name in experiments else groups[name])
        else:
            hint = did_you_mean(name, [*experiments, *groups])
            item.wrong(f"there is no experiment or group {name}{hint}", "unknown")
    return tuple(found)


def _groups(section: Node, experiments: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the experiments of each group; groups may hold groups."""
    nodes = section.fields(section.value if isinstance(section.value, dict) else ())
    groups: dict[str, tuple[str, ...]] = dict.fromkeys(nodes, ())
    inner = {name: {item.shown for item in node.items} & groups.keys() for name, node in nodes.items()}
    for name in nodes.keys() & {*experiments}:
        nodes[name].wrong("is already the name of an experiment", "conflict", at="key")
    try:
        for name in TopologicalSorter(inner).static_order():
            groups[name] = _resolve(nodes[name], experiments, groups)
    except CycleError as error:
        first = next(name for name in nodes if name in error.args[1])
        nodes[first].wrong("contains itself", "conflict", at="key")
    return groups

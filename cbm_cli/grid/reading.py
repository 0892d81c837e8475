"""From a grid file to experiments; everything that is wrong with it is told at once."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from pydantic import Field, ValidationError

from cbm_cli.errors import CbmError
from cbm_cli.grid.cells import expand, read_choices
from cbm_cli.grid.data import Data
from cbm_cli.grid.fields import FIELDS, INSTEAD, PATHS, written
from cbm_cli.grid.machine import Model
from cbm_cli.grid.rules import Rules, check_ties, read_rules
from cbm_cli.grid.settings import Experiment, Settings, TableSpec
from cbm_cli.grid.values import Count, Frozen
from cbm_cli.grid.wording import did_you_mean, fields_of, report, shown
from cbm_cli.grid.yaml_text import MAX_DEPTH, Node, Place, Problems, load, parse

SECTIONS = ("defaults", "default", "groups", "experiments")
RULES = ("zip", "exclude", "when")
NAME = r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}"  # it becomes the name of a folder
_LAYOUT = ("rows", "columns", "groups")
_EXAMPLE = Settings(
    data=Data(name="mnist"),
    model=Model(kind="rbm", hidden=1),
    offsets="00",
    sampler="CD-1",
    learning_rate=1,
    epochs=1,
)
COLUMNS = ("experiment", *_EXAMPLE.row())


class Head(Frozen):
    """What an experiment says beside its settings."""

    description: str = Field("", description="One sentence: what to look for")
    trials: Count = Field(25, description="Runs of each cell, with seeds of their own")
    seed: Annotated[int, Field(ge=0)] = Field(1, description="What the seeds of the trials are made from")
    table: TableSpec = Field(TableSpec(), description="How cbm table lays the experiment out")


KNOWN = (*Head.model_fields, *FIELDS, *RULES)
SETTABLE = ("trials", "seed", *PATHS)


@dataclass(frozen=True)
class Grid:
    """A grid file.

    Attributes
    ----------
    path : pathlib.Path
    experiments : dict of str to Experiment
        In the order of the file.
    groups : dict of str to tuple of str
        Names of experiments; groups within groups are resolved.
    default : tuple of str
        Experiments that run where none is named: those under ``default:``, or else all.
    """

    path: Path
    experiments: dict[str, Experiment]
    groups: dict[str, tuple[str, ...]]
    default: tuple[str, ...]

    def select(self, names: Sequence[str] = ()) -> list[Experiment]:
        """Return the named experiments, those of named groups, or the default ones, each once.

        Raises
        ------
        CbmError
            A name is neither an experiment nor a group of the file.
        """
        for name in names:
            if name not in self.experiments and name not in self.groups:
                raise CbmError(self._unknown(name))
        wanted = [one for name in names for one in self.groups.get(name, (name,))] or self.default
        return [self.experiments[name] for name in dict.fromkeys(wanted)]

    def _unknown(self, name: str) -> str:
        hint = did_you_mean(name, [*self.experiments, *self.groups])
        lines = [f"{self.path}: there is no experiment {name!r}{hint if 'mean' in hint else ''}"]
        lines += [f"experiments: {', '.join(self.experiments)}"]
        return "\n".join(lines + [f"groups: {', '.join(self.groups)}"] * bool(self.groups))


def read_grid(
    path: Path,
    overrides: Mapping[str, str] = MappingProxyType({}),
    trials: int | None = None,
    selected: Sequence[str] = (),
) -> Grid:
    """Read, validate and expand a grid file.

    Parameters
    ----------
    path : pathlib.Path
        YAML file.
    overrides : mapping of str to str
        Fields, dotted where nested (``data.flip``), and what the experiments have instead, as YAML text:
        ``0.05``, or ``[0.1, 0.05]`` for an axis. An overridden field leaves its ``zip``, and ``exclude``
        and ``when`` may then match no cell.
    trials : int, optional
        Runs of each cell in place of those of the file.
    selected : sequence of str
        Names of the experiments and groups that are changed so; by default those under ``default:``, or all.

    Raises
    ------
    CbmError
        One line for each thing that is wrong: ``file:line:column: experiment.field: what; remedy``.
    """
    problems = Problems()
    root = load(Path(path), problems)
    sections = fields_of(root, SECTIONS, problems)
    changes = _overrides(overrides, trials, problems)
    defaults = fields_of(sections["defaults"], KNOWN, problems) if "defaults" in sections else {}
    nodes = _experiments(root, sections, problems)
    names = _Names(tuple(nodes), sections.get("groups"), problems)
    default = names.resolve(sections["default"]) if "default" in sections else tuple(nodes)
    groups = names.resolve_all()
    changed = {one for name in selected for one in groups.get(name, (name,))} or {*default}
    experiments = {
        name: _experiment(name, node, defaults, changes if name in changed else {}, problems)
        for name, node in nodes.items()
    }
    _check_starts(experiments, nodes, problems)
    problems.raise_any()
    experiments = {name: _with_sources(experiments, name) for name in experiments}
    return Grid(Path(path), experiments, groups, default)


def _overrides(overrides: Mapping[str, str], trials: int | None, problems: Problems) -> dict[str, Node]:
    changes = {}
    for field, text in overrides.items():
        source = f"--set {field}"
        if field in SETTABLE:
            changes[field] = parse(text, source, problems)
        else:
            problems.add(Place(source), "", f"unknown field{did_you_mean(field, SETTABLE)}")
    if trials is not None:
        changes["trials"] = Node(str(trials), "", Place("--trials"), Place("--trials"))
    return changes


def _experiments(root: Node, sections: Mapping[str, Node], problems: Problems) -> dict[str, Node]:
    """Return the experiments whose names can be used."""
    if not isinstance(root.value, dict):
        return {}
    node = sections.get("experiments")
    if node is None or not isinstance(node.value, dict) or not node.value:
        place = node.key if node else root.place
        problems.add(
            place, "experiments", "must name at least one, as in experiments: {first: {data: mnist}}"
        )
        return {}
    for name, child in node.value.items():
        if not re.fullmatch(NAME, name):
            remedy = "use up to 100 of A-Z a-z 0-9 _ . + -, a letter or digit first"
            problems.add(child.key, child.label, f"cannot name an experiment, or a folder; {remedy}")
    return node.value


def _experiment(
    name: str, node: Node, defaults: Mapping[str, Node], changes: Mapping[str, Node], problems: Problems
) -> Experiment:
    """Read one experiment; after problems it has no cells."""
    before = problems.count
    own = fields_of(node, KNOWN, problems)
    given = _completed(own, defaults)
    for path, value in changes.items():
        given = written(given, path, value)
    head = _head({field: given[field] for field in Head.model_fields if field in given}, node, problems)
    rules = read_rules(given, problems)
    for tie in rules.ties:
        tie.fields = [field for field in tie.fields if field not in changes]
    choices = read_choices({field: value for field, value in given.items() if field in FIELDS}, problems)
    if problems.count == before:
        check_ties(rules.ties, choices, problems)
    cells = expand(choices, rules, node, problems) if problems.count == before else ()
    if problems.count == before and not PATHS.keys() & changes.keys():
        _check_matched(rules, own, problems)
        _check_sliding(cells, own, problems)
    return Experiment(name, head.description, head.trials, head.seed, cells, head.table)


def _completed(own: dict[str, Node], defaults: Mapping[str, Node]) -> dict[str, Node]:
    """Return the fields of an experiment, then the defaults; epochs of its own replace default updates."""
    taken = {*own, *(other for field, other in INSTEAD.items() if field in own)}
    return own | {field: value for field, value in defaults.items() if field not in taken}


def _head(fields: Mapping[str, Node], node: Node, problems: Problems) -> Head:
    plain = {field: value.plain() for field, value in fields.items()}
    if "table" in fields:
        plain["table"] = _table(fields["table"], problems)
    try:
        return Head.model_validate(plain)
    except ValidationError as error:
        report(error, replace(node, value=dict(fields)), problems)
        return Head()


def _table(node: Node, problems: Problems) -> dict:
    """Return ``table:`` with single names as lists, after looking the names up."""
    parts = fields_of(node, TableSpec.model_fields, problems)
    table = {name: part.plain() for name, part in parts.items()}
    for name in [name for name in _LAYOUT if name in parts]:
        items = parts[name].value if isinstance(parts[name].value, list) else [parts[name]]
        table[name] = [str(item.value).replace(".", "_") for item in items]
        for item, column in zip(items, table[name], strict=True):
            if column not in COLUMNS:
                hint = did_you_mean(column, COLUMNS)
                problems.add(item.place, item.label, f"there is no column {shown(item)}{hint}")
    return table


def _check_matched(rules: Rules, own: Mapping[str, Node], problems: Problems) -> None:
    """A condition that never holds is a typo, unless it comes from the defaults and is meant for others."""
    conditions = {"exclude": rules.exclude, "when": [condition for condition, _ in rules.when]}
    for condition in [one for rule, ones in conditions.items() if rule in own for one in ones]:
        if not condition.matched:
            problems.add(condition.node.place, condition.node.label, "holds for no cell of the grid")


def _check_sliding(cells: Sequence[Settings], own: Mapping[str, Node], problems: Problems) -> None:
    """A sliding factor serves the cells with ``_s``; it may stand beside others, but not without any."""
    default = Settings.default_of("sliding_factor")
    changed = any(cell.sliding_factor != default for cell in cells)
    schemes = [cell.offsets + (cell.pretraining.offsets or "") for cell in cells]
    if "sliding_factor" in own and changed and not any("_s" in scheme for scheme in schemes):
        node = own["sliding_factor"]
        problems.add(node.place, node.label, "has no effect: no offset scheme here has _s, as in dd^b_s")


def _check_starts(
    experiments: Mapping[str, Experiment], nodes: Mapping[str, Node], problems: Problems
) -> None:
    """Add a problem for each experiment that starts from one that is not there, or from itself in the end."""
    for name, experiment in experiments.items():
        for source in _names_of_sources(experiment):
            fields = nodes[name].value if isinstance(nodes[name].value, dict) else {}
            node = fields.get("start_from", nodes[name])
            if isinstance(node.value, dict):
                node = node.value.get("experiment", node)
            if source not in experiments:
                hint = did_you_mean(source, experiments)
                problems.add(node.place, node.label, f"there is no experiment {source}{hint}")
            elif name in _all_sources(experiments, source):
                problems.add(
                    node.place, node.label, f"starts from {source}, which starts from {name} in the end"
                )


def _names_of_sources(experiment: Experiment) -> list[str]:
    names = dict.fromkeys(cell.start_from.experiment for cell in experiment.cells)
    return [name for name in names if name]


def _all_sources(experiments: Mapping[str, Experiment], name: str) -> set[str]:
    """Return an experiment, those that it starts from, and so on."""
    found, waiting = set(), [name]
    while waiting:
        one = waiting.pop()
        if one in experiments and one not in found:
            found.add(one)
            waiting += _names_of_sources(experiments[one])
    return found


def _with_sources(experiments: Mapping[str, Experiment], name: str) -> Experiment:
    sources = (_with_sources(experiments, source) for source in _names_of_sources(experiments[name]))
    return replace(experiments[name], sources=tuple(sources))


class _Names:
    """Resolves names of experiments and groups, each group once, however they nest."""

    def __init__(self, experiments: tuple[str, ...], groups: Node | None, problems: Problems) -> None:
        self.experiments = experiments
        self.problems = problems
        self.groups = fields_of(groups, groups.value, problems) if groups else {}
        self.resolved: dict[str, tuple[str, ...]] = {}
        self.open: list[str] = []
        for name, node in self.groups.items():
            if name in self.experiments:
                problems.add(node.key, node.label, "is the name of an experiment already")

    def resolve_all(self) -> dict[str, tuple[str, ...]]:
        return {name: self._group(name) for name in self.groups}

    def resolve(self, node: Node) -> tuple[str, ...]:
        """Return the experiments that a name, or a list of names, stands for."""
        items = node.value if isinstance(node.value, list) else [node]
        if not items:
            self.problems.add(node.place, node.label, "names no experiment")
        return tuple(dict.fromkeys(one for item in items for one in self._one(item)))

    def _one(self, item: Node) -> tuple[str, ...]:
        name = shown(item)
        if name in self.experiments:
            return (name,)
        if name in self.groups:
            return self._group(name)
        hint = did_you_mean(name, [*self.experiments, *self.groups])
        self.problems.add(item.place, item.label, f"there is no experiment or group {name}{hint}")
        return ()

    def _group(self, name: str) -> tuple[str, ...]:
        node = self.groups[name]
        if name in self.open or len(self.open) > MAX_DEPTH:
            told = "contains itself" if name in self.open else f"stands below {MAX_DEPTH} other groups"
            self.problems.add(node.key, node.label, told)
            return ()
        if name not in self.resolved:
            self.open.append(name)
            self.resolved[name] = self.resolve(node)
            self.open.pop()
        return self.resolved[name]

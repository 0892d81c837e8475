"""From experiments to the trials that still have to be run."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.datasets.loading import load
from cbm_cli.datasets.spec import available
from cbm_cli.errors import CbmError
from cbm_cli.execution.origin import Named, Names, Start, TrialStarts
from cbm_cli.grid.settings import Data, Experiment, Settings, Trial
from cbm_cli.results import Progress, Store
from cbm_cli.results.journal import TrialKey
from cbm_cli.results.outcome import MachineArrays, read_progress
from cbm_cli.trial.checks import check, check_table
from cbm_cli.trial.pretraining import updates_of_layer
from cbm_cli.trial.start import start_from_machine, total_updates


@dataclass(frozen=True, slots=True)
class Job:
    """A trial to run, its data set, and every experiment that wants its outcome."""

    trial: Trial
    run_id: str
    data: Dataset
    stores: tuple[Store, ...]
    pretraining: str | None = (
        None  # name of its pre-trained layers, which other trials may share
    )
    sources: dict[str, str] = field(
        default_factory=dict
    )  # texts of a user's own recorders, by name
    # the run-id without the length of training, which shorter and longer trainings
    # share
    course: str = ""
    start: Start | None = None  # the machine that it starts from, if any
    state: Path | None = (
        None  # of this training, or of one of another length, to continue from
    )

    @property
    def key(self) -> TrialKey:
        """Identity of the trial."""
        return self.run_id, self.trial.number

    def since(self) -> Progress | None:
        """Return where the trial starts: at a state, or from a machine or pre-trained
        layers.
        """
        if self.state and (state := self.read(self.state)):
            return state
        if self.start:
            its = self.trial.settings
            machine = self.start.machine(its, self.data)
            return Progress(
                start_from_machine(its, self.data, self.trial.seed, machine)
            )
        return (
            Progress(None, stage=self.stages, pretrained=self.layers)
            if self.layers
            else None
        )

    def read(self, path: Path) -> Progress | None:
        """Read a state; None for one that is beyond the length of this training, or
        started elsewhere.
        """
        found = read_progress(path, self.digest)
        is_layer = found is not None and self.pretraining and found.stage < self.stages
        return (
            found
            if found is not None and (is_layer or found.update <= self.updates)
            else None
        )

    @property
    def layers(self) -> MachineArrays:
        """Layers that another trial has pre-trained."""
        name, number = self.pretraining, self.trial.number
        return self.stores[0].pretrained(name, number) if name else {}

    @property
    def digest(self) -> str:
        """SHA-256 of the machine file that it starts from, or an empty text."""
        return self.start.digest if self.start else ""

    @property
    def stages(self) -> int:
        """Number of layers that are pre-trained."""
        its = self.trial.settings
        return its.model.layers - 1 if its.pretraining.epochs else 0

    @property
    def updates(self) -> int:
        """Length of the whole training."""
        return total_updates(self.trial.settings, self.data)

    def share(self, progress: Progress) -> float:
        """Share of all updates, those of pre-training included, that are made."""
        layer = updates_of_layer(self.trial.settings, self.data)
        return min(
            1,
            (progress.stage * layer + progress.update)
            / (self.stages * layer + self.updates),
        )

    @property
    def title(self) -> str:
        """A few words for progress and messages."""
        how = self.trial.settings
        words = (
            how.data.title,
            how.offsets,
            how.sampler_name,
            how.learning_rate,
            "trial",
            self.trial.number,
        )
        return " ".join(map(str, words))


@dataclass
class Agenda:
    """The plan of a run: trials that are finished, and tasks."""

    experiments: list[Experiment]
    stores: dict[str, Store]  # by experiment
    run_ids: dict[
        str, dict[str, str]
    ]  # of the cells, with their courses, by experiment
    datasets: Mapping[Data, Dataset]
    jobs: list[Job] = field(
        default_factory=list
    )  # each different trial once, trial 0 of every cell first
    done: int = 0  # different trials that are finished already
    resumed: int = 0  # jobs that resume an interrupted trial
    continued: int = 0  # jobs that continue a training of another length
    started: int = 0  # jobs that start from machine files or another experiment
    # jobs from the beginning, as all states are of longer trainings or of other
    # machines
    beyond: int = 0
    damaged: list[str] = field(
        default_factory=list
    )  # finished trials with damaged files, which run again
    folder: Path = Path()  # paths of a user's own data are relative to it

    @property
    def asked(self) -> int:
        """Trials of all experiments; those that experiments share count for each."""
        return sum(
            experiment.trials * len(experiment.cells) for experiment in self.experiments
        )

    @property
    def total(self) -> int:
        """Different trials of all experiments."""
        return self.done + len(self.jobs)

    def waves(self) -> list[list[Job]]:
        """Return the jobs in groups, each after the jobs that write the machines it
        starts from.
        """
        keys = {job.key: job for job in self.jobs}

        def depth(job: Job) -> int:
            source = (
                keys.get(job.start.needs) if job.start and job.start.needs else None
            )
            return 0 if source is None else 1 + depth(source)

        waves: dict[int, list[Job]] = {}
        for job in self.jobs:
            waves.setdefault(depth(job), []).append(job)
        return [waves[number] for number in sorted(waves)]


def only_available(
    experiments: Sequence[Experiment], folder: Path = Path()
) -> tuple[list[Experiment], dict[str, list[str]]]:
    """Leave out cells without data files, and experiments without other cells.

    Also returned are the titles of the missing data sets, by experiment.
    """
    left, missing = [], {}
    for experiment in experiments:
        absent = {
            data
            for data in {cell.data for cell in experiment.cells}
            if available(data, folder)
        }
        cells = tuple(cell for cell in experiment.cells if cell.data not in absent)
        if absent:
            missing[experiment.name] = sorted(data.title for data in absent)
        if cells:
            left.append(replace(experiment, cells=cells))
    return left, missing


def make_agenda(
    experiments: Sequence[Experiment], root: Path, folder: Path = Path()
) -> Agenda:
    """Load the data sets, check every cell against them, and find what is finished.

    Parameters
    ----------
    root : Path
        The results folder.
    folder : Path
        The folder of the grid, to which paths are relative.

    Raises
    ------
    CbmError
        All cells that cannot be run, all missing data files, or an unusable results
        folder.
    """
    names = make_names(experiments, root, folder)
    stores = {one.name: Store(root / one.name) for one in experiments}
    for store in stores.values():
        store.begin()
    run_ids = {
        one.name: dict(names.of(one, cell)[:2] for cell in one.cells)
        for one in experiments
    }
    agenda = Agenda([*experiments], stores, run_ids, names.datasets, folder=folder)
    _find_jobs(agenda, names)
    return agenda


def make_names(
    experiments: Sequence[Experiment], root: Path, folder: Path = Path()
) -> Names:
    """Load the data sets of experiments and check every cell; parameters and errors as
    for `make_agenda`.
    """
    names = Names(_datasets_of(experiments, folder), root, folder)
    problems: list[str] = []
    for experiment in experiments:
        known: dict[str, Settings] = {}
        cells = [(cell, names.datasets[cell.data]) for cell in experiment.cells]
        for cell, data in cells:
            try:
                check(cell, data)
                named = names.of(experiment, cell)
                if named.start:
                    named.start.check(data, experiment.trials)
                other = known.setdefault(named.run_id, cell)
                if differing := [
                    name for name, value in cell if value != getattr(other, name)
                ]:
                    told = "has the same content or value as in another cell"
                    raise CbmError(f"{told}; leave one of them out", field=differing[0])
            except CbmError as error:
                problems.append(experiment.located(cell, error))
        try:
            if not problems:
                check_table(experiment.table, cells)
        except CbmError as error:
            problems.append(experiment.located(experiment.cells[0], error))
    _raise_all(problems)
    return names


def _raise_all(problems: Iterable[str]) -> None:
    if told := dict.fromkeys(problems):
        raise CbmError("\n".join(told))


def _datasets_of(
    experiments: Sequence[Experiment], folder: Path
) -> dict[Data, Dataset]:
    """Load the data sets of all cells; CbmError for all that cannot be loaded, at
    once.
    """
    datasets, problems = dict[Data, Dataset](), list[str]()
    cells = dict[Data, tuple[Experiment, Settings]]()  # the first of each data set
    for experiment in experiments:
        for cell in experiment.cells:
            cells.setdefault(cell.data, (experiment, cell))
    for data, (experiment, cell) in cells.items():
        try:
            datasets[data] = load(data, folder=folder)
        except CbmError as error:
            problems.append(experiment.located(cell, error, "data"))
    if datasets and any(
        available(data, folder) for data in cells.keys() - datasets.keys()
    ):
        some = f"{len(datasets)} of {len(cells)} data sets are here"
        problems.append(f"{some}; add --available to run these without the others")
    _raise_all(problems)
    return datasets


def _find_jobs(agenda: Agenda, names: Names) -> None:
    """Find the trials that are not finished, in their order, and where each starts."""
    keys, wanted = set[TrialKey](), dict[TrialKey, Job]()
    sources: dict[
        TrialKey, tuple[Experiment, TrialStarts]
    ] = {}  # trials that others start from; the others
    for experiment in agenda.experiments:
        store, named = (
            agenda.stores[experiment.name],
            [names.of(experiment, it) for it in experiment.cells],
        )
        agenda.damaged += [
            f"{problem}; what is lost is made again"
            for problem in store.damaged().values()
        ]
        lines = store.lines()
        for index, trial in enumerate(experiment):
            start = named[index % len(named)].start
            job = job_of(trial, named[index % len(named)], store)
            keys.add(job.key)
            line = lines.get(job.run_id, {}).get(trial.number)
            if line and line.finished:
                problem = store.problem(line)
                if (
                    not problem
                    and job.start
                    and job.digest
                    and store.line(*job.key).start != job.digest
                ):
                    problem = (
                        f"{store.journal.path}: trial {trial.number} of "
                        f"{job.run_id}: started from "
                    )
                    problem += f"another machine than {job.start.file} holds now"
                if not problem:
                    continue
                agenda.damaged.append(f"{problem}; this trial is run again")
            known = wanted.setdefault(job.key, job)
            if store not in known.stores:
                wanted[job.key] = replace(known, stores=(*known.stores, store))
            if isinstance(start, TrialStarts):
                sources.setdefault((start.fact, trial.number), (experiment, start))
    told: dict[
        tuple[str, str], str
    ] = {}  # of the first unfinished trial of each pair of experiments
    for (run_id, number), (user, start) in sorted(
        sources.items(), key=lambda one: one[0][1]
    ):
        if (run_id, number) not in wanted and number not in start.store.finished(
            run_id
        ):
            error = CbmError(start.unfinished(number), field="start_from")
            told.setdefault(
                (user.name, start.source.name), user.located(start.cell, error)
            )
    _raise_all(told.values())
    states, seen, turns = (
        states_in(names.root),
        Counter[TrialKey](),
        dict[TrialKey, tuple[bool, int]](),
    )
    for (
        key,
        job,
    ) in (
        wanted.items()
    ):  # of jobs that share pre-trained layers one each, then the others
        seen[shared := (job.pretraining or job.run_id, job.trial.number)] += 1
        turns[key] = seen[shared] > 1, job.trial.number  # trial 0 of every cell first
    agenda.jobs = [
        _counted(wanted[key], agenda, states)
        for key in sorted(wanted, key=turns.__getitem__)
    ]
    agenda.done = len(keys) - len(wanted)


def job_of(trial: Trial, named: Named, store: Store) -> Job:
    """Return the job that runs a trial for an experiment."""
    start = named.start.of(trial.number) if named.start else None
    facts = named.pretraining, named.sources, named.course, start
    return Job(trial, named.run_id, named.data, (store,), *facts)


def states_in(root: Path) -> dict[TrialKey, list[Path]]:
    """Return the states of trials of all experiments of a results folder, by course and
    number.
    """
    found = defaultdict[TrialKey, list[Path]](list)
    for folder in sorted(root.glob("*/checkpoints")):
        for state in Store(folder.parent).states():
            found[state.course, state.trial].append(state.path)
    return found


def _counted(
    job: Job, agenda: Agenda, states: Mapping[TrialKey, Sequence[Path]]
) -> Job:
    """Count a job by what it continues from: the furthest state; those that cannot be
    read are removed.
    """
    paths, found = (
        states.get((job.course, job.trial.number), ()),
        dict[Path, tuple[int, int]](),
    )
    for path in paths:
        try:
            if state := job.read(path):
                found[path] = state.stage, state.update
        except CbmError as error:
            agenda.damaged.append(str(error))
            path.unlink(missing_ok=True)
    if found:
        path = max(found, key=found.__getitem__)
        is_own = path == job.stores[0].state_path(job.course, *job.key)
        agenda.resumed += is_own
        agenda.continued += not is_own
        return replace(job, state=path)
    agenda.beyond += any(path.exists() for path in paths)
    agenda.started += job.start is not None
    agenda.resumed += bool(job.layers)
    return job

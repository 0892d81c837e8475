"""From experiments to the trials that still have to be run."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.datasets.loading import load
from cbm_cli.datasets.spec import lack_of
from cbm_cli.errors import CbmError, DamagedError
from cbm_cli.execution.identity import Named, Names
from cbm_cli.execution.starts import Start, TrialStarts
from cbm_cli.execution.work import same_folder
from cbm_cli.grid.settings import Data, Experiment, Settings, Trial
from cbm_cli.results import Progress, Store
from cbm_cli.results.checked import CheckedMachines
from cbm_cli.results.journal import LineHead, TrialKey
from cbm_cli.results.outcome import MachineArrays
from cbm_cli.results.states import read_progress
from cbm_cli.results.writer import check_place
from cbm_cli.trial.checks import check, check_table
from cbm_cli.trial.own_recorders import compile_recorder
from cbm_cli.trial.pretraining import updates_of_layer
from cbm_cli.trial.start import start_from_machine, total_updates


@dataclass(frozen=True, slots=True)
class Job:
    """A trial to run, its data set, and every experiment that wants its outcome."""

    trial: Trial
    run_id: str
    data: Dataset
    stores: tuple[Store, ...]
    # Name of its pre-trained layers, which other trials may share
    pretraining: str | None = None
    # Texts of a user's own recorders, by name
    sources: dict[str, str] = field(default_factory=dict)
    # The run-id without the length of training, which shorter and longer trainings
    # share
    course: str = ""
    start: Start | None = None  # the machine that it starts from, if any
    # Of this training, or of one of another length, to continue from
    state: Path | None = None

    @property
    def key(self) -> TrialKey:
        """Identity of the trial."""
        return self.run_id, self.trial.number

    def since(self) -> Progress | None:
        """Return where the trial starts: at a state, or from a machine or pre-trained
        layers.
        """
        if self.state:
            progress = self.read(self.state)
            if progress:
                return progress
        if self.start:
            settings = self.trial.settings
            machine = self.start.machine(settings, self.data)
            return Progress(
                start_from_machine(settings, self.data, self.trial.seed, machine)
            )
        layers = self.layers
        if layers:
            return Progress(None, stage=self.stages, pretrained=layers)
        return None

    def read(self, path: Path) -> Progress | None:
        """Read a state; None for one that is beyond the length of this training, or
        started elsewhere.
        """
        progress = read_progress(path, self.digest)
        if progress is None:
            return None
        is_pretraining = self.pretraining and progress.stage < self.stages
        return progress if is_pretraining or progress.update <= self.updates else None

    @property
    def layers(self) -> MachineArrays:
        """Layers that another trial has pre-trained."""
        if not self.pretraining:
            return {}
        return self.stores[0].pretrained(self.pretraining, self.trial.number)

    @property
    def digest(self) -> str:
        """SHA-256 of the machine file that it starts from, or an empty text."""
        return self.start.digest if self.start else ""

    @property
    def stages(self) -> int:
        """Number of layers that are pre-trained."""
        settings = self.trial.settings
        return settings.model.layers - 1 if settings.pretraining.epochs else 0

    @property
    def updates(self) -> int:
        """Length of the whole training."""
        return total_updates(self.trial.settings, self.data)

    def share(self, progress: Progress) -> float:
        """Share of all updates, those of pre-training included, that are made."""
        layer = updates_of_layer(self.trial.settings, self.data)
        made = progress.stage * layer + progress.update
        return min(1, made / (self.stages * layer + self.updates))

    @property
    def title(self) -> str:
        """A few words for progress and messages."""
        settings = self.trial.settings
        words = (
            settings.data.title,
            settings.offsets,
            settings.sampler_name,
            settings.learning_rate,
            f"trial {self.trial.number}",
        )
        return " ".join(map(str, words))


@dataclass
class Agenda:
    """The plan of a run: trials that are finished, and tasks."""

    experiments: list[Experiment]
    stores: dict[str, Store]  # by experiment
    # Of the cells, with their courses, by experiment
    run_ids: dict[str, dict[str, str]]
    datasets: Mapping[Data, Dataset]
    # Each different trial once, trial 0 of every cell first
    jobs: list[Job] = field(default_factory=list)
    done: int = 0  # different trials that are finished already
    resumed: int = 0  # jobs that continue from states or pre-trained layers
    # What is damaged and made again, in words
    damaged: list[str] = field(default_factory=list)
    # States whose checksum fails; a run sets them aside
    damaged_states: list[Path] = field(default_factory=list)
    checked: CheckedMachines | None = None  # what a run need not read again
    folder: Path = Path()  # paths of a user's own data are relative to it

    @property
    def trials(self) -> int:
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
        jobs = {job.key: job for job in self.jobs}

        def depth(job: Job) -> int:
            if job.start is None or job.start.needs not in jobs:
                return 0
            return 1 + depth(jobs[job.start.needs])

        waves: dict[int, list[Job]] = {}
        for job in self.jobs:
            waves.setdefault(depth(job), []).append(job)
        return [waves[number] for number in sorted(waves)]


def only_available(
    experiments: Sequence[Experiment], folder: Path
) -> tuple[list[Experiment], dict[str, list[str]]]:
    """Leave out cells without data files, and experiments without other cells.

    Also returned are the titles of the missing data sets, by experiment.
    """
    left, missing = [], {}
    for experiment in experiments:
        sets = {cell.data for cell in experiment.cells}
        absent = {data for data in sets if lack_of(data, folder)}
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

    Nothing is written: damaged states are renamed by the run.

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
    agenda = Agenda(
        experiments=[*experiments],
        stores={
            experiment.name: Store(root / experiment.name) for experiment in experiments
        },
        run_ids={},
        datasets=names.datasets,
        checked=CheckedMachines(root),
        folder=folder,
    )
    for experiment in experiments:
        check_place(agenda.stores[experiment.name])
        named = [names.of(experiment, cell) for cell in experiment.cells]
        agenda.run_ids[experiment.name] = {cell.run_id: cell.course for cell in named}
    jobs = _unfinished(agenda, names)
    _check_sources(agenda, names, jobs)
    states = states_in(root)
    agenda.jobs = [continued(job, agenda, states) for job in in_turns(jobs.values())]
    return agenda


def make_names(experiments: Sequence[Experiment], root: Path, folder: Path) -> Names:
    """Load the data sets of experiments and check every cell; parameters and errors as
    for `make_agenda`.
    """
    names = Names(_datasets_of(experiments, folder), root, folder)
    problems: list[str] = []
    compiled: set[str] = set()
    for experiment in experiments:
        cells = [(cell, names.datasets[cell.data]) for cell in experiment.cells]
        first_of: dict[str, Settings] = {}  # cells by run-id
        for cell, data in cells:
            try:
                check(cell, data)
                named = names.of(experiment, cell)
                if named.start:
                    named.start.check(data, experiment.trials)
                _check_different(cell, first_of.setdefault(named.run_id, cell))
                for name, source in named.sources.items():
                    if name not in compiled:
                        with same_folder():
                            compile_recorder(name, source)
                        compiled.add(name)
            except CbmError as error:
                problems.append(experiment.located(cell, error))
        if problems:
            continue
        try:
            check_table(experiment.table, cells)
        except CbmError as error:
            problems.append(experiment.located(experiment.cells[0], error))
    _raise_all(problems)
    return names


def _check_different(cell: Settings, other: Settings) -> None:
    """Raise CbmError if a cell is another one, in other words."""
    for name, setting in cell:
        if setting != getattr(other, name):
            raise CbmError(
                "has the same content or value as in another cell; leave one of them "
                "out",
                field=name,
            )


def _raise_all(problems: Iterable[str]) -> None:
    lines = dict.fromkeys(problems)
    if lines:
        raise CbmError("\n".join(lines))


def _datasets_of(
    experiments: Sequence[Experiment], folder: Path
) -> dict[Data, Dataset]:
    """Load the data sets of all cells; CbmError for all that cannot be loaded, at
    once.
    """
    users: dict[Data, tuple[Experiment, Settings]] = {}  # the first of each data set
    for experiment in experiments:
        for cell in experiment.cells:
            users.setdefault(cell.data, (experiment, cell))
    datasets: dict[Data, Dataset] = {}
    problems: list[str] = []
    for data, (experiment, cell) in users.items():
        try:
            datasets[data] = load(data, folder=folder)
        except CbmError as error:
            problems.append(experiment.located(cell, error, "data"))
    missing = [data for data in users if data not in datasets]
    if datasets and any(lack_of(data, folder) for data in missing):
        problems.append(
            f"{len(datasets)} of {len(users)} data sets are here; add --available to "
            "run these without the others"
        )
    _raise_all(problems)
    return datasets


# Jobs


def job_of(trial: Trial, named: Named, store: Store) -> Job:
    """Return the job that runs a trial for an experiment."""
    return Job(
        trial=trial,
        run_id=named.run_id,
        data=named.data,
        stores=(store,),
        pretraining=named.pretraining,
        sources=named.sources,
        course=named.course,
        start=named.start.of(trial.number) if named.start else None,
    )


def _unfinished(agenda: Agenda, names: Names) -> dict[TrialKey, Job]:
    """Return the jobs of trials that are not finished, in the order of the grid; count
    the others.
    """
    jobs: dict[TrialKey, Job] = {}
    keys: set[TrialKey] = set()
    for experiment in agenda.experiments:
        store = agenda.stores[experiment.name]
        for problem in store.damaged().values():
            agenda.damaged.append(f"{problem}; what is lost is made again")
        lines = store.lines()
        named = [names.of(experiment, cell) for cell in experiment.cells]
        for index, trial in enumerate(experiment):
            job = job_of(trial, named[index % len(named)], store)
            keys.add(job.key)
            line = lines.get(job.run_id, {}).get(trial.number)
            if line and line.finished:
                problem = _problem(job, line, agenda)
                if not problem:
                    continue
                agenda.damaged.append(f"{problem}; this trial is run again")
            first = jobs.setdefault(job.key, job)
            if store not in first.stores:
                jobs[job.key] = replace(first, stores=(*first.stores, store))
    agenda.done = len(keys) - len(jobs)
    return jobs


def _problem(job: Job, line: LineHead, agenda: Agenda) -> str:
    """Say why a finished trial has to run again; empty if it does not."""
    (store,) = job.stores
    damage = ""
    if agenda.checked:
        damage = agenda.checked.damage(store, line)
    if damage or not job.start or not job.digest:
        return damage
    if store.line(*job.key).start == job.digest:
        return ""
    return (
        f"{store.journal.path}: trial {job.trial.number} of {job.run_id}: started from "
        f"another machine than {job.start.file} holds now"
    )


def _check_sources(agenda: Agenda, names: Names, jobs: Mapping[TrialKey, Job]) -> None:
    """Raise CbmError for trials that start from trials which are neither finished nor
    jobs: of each cell, for the first.
    """
    problems: list[str] = []
    for experiment in agenda.experiments:
        for cell in experiment.cells:
            named = names.of(experiment, cell)
            start = named.start
            if not isinstance(start, TrialStarts):
                continue
            finished = start.store.finished(start.fact)
            for number in range(experiment.trials):
                is_ready = number in finished or (start.fact, number) in jobs
                if (named.run_id, number) in jobs and not is_ready:
                    message = start.unfinished(number)
                    error = CbmError(message, field="start_from")
                    problems.append(experiment.located(cell, error))
                    break
    _raise_all(problems)


def in_turns(jobs: Iterable[Job]) -> list[Job]:
    """Return jobs in the order in which they begin.

    Of jobs that share pre-trained layers one begins before all others, which need not
    train these layers again; then trial 0 of every cell comes before trial 1 of any.
    """
    leaders: dict[TrialKey, Job] = {}
    followers: list[Job] = []
    for job in sorted(jobs, key=attrgetter("trial.number")):
        group = job.pretraining or job.run_id, job.trial.number
        if leaders.setdefault(group, job) is not job:
            followers.append(job)
    return [*leaders.values(), *followers]


# Where jobs continue


def states_in(root: Path) -> dict[TrialKey, list[Path]]:
    """Return the states of trials of all experiments of a results folder, by course and
    number.
    """
    paths: dict[TrialKey, list[Path]] = defaultdict(list)
    for folder in sorted(root.glob("*/checkpoints")):
        for state in Store(folder.parent).states():
            paths[state.course, state.trial].append(state.path)
    return paths


def continued(
    job: Job, agenda: Agenda, states: Mapping[TrialKey, Sequence[Path]]
) -> Job:
    """Return a job with the furthest state that it can continue from, and count it.

    States whose checksum fails are noted. CbmError for those that cannot be read for
    another reason.
    """
    places: dict[Path, tuple[int, int]] = {}  # how far each state is
    for path in states.get((job.course, job.trial.number), ()):
        try:
            progress = job.read(path)
        except DamagedError as error:
            _note_damage(agenda, path, error)
            continue
        if progress:
            places[path] = progress.stage, progress.update
    if places:
        agenda.resumed += 1
        return replace(job, state=max(places, key=places.__getitem__))
    try:
        agenda.resumed += bool(job.layers)
    except DamagedError as error:
        path = job.stores[0].layers_path(job.pretraining or "", job.trial.number)
        _note_damage(agenda, path, error)
    return job


def _note_damage(agenda: Agenda, path: Path, error: DamagedError) -> None:
    """Note a file whose checksum fails; several jobs may want the same one."""
    if path not in agenda.damaged_states:
        agenda.damaged_states.append(path)
        agenda.damaged.append(f"{error}; what it holds is trained again")

"""From experiments to the trials that still have to be run."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cbm_cli.datasets import Dataset, load
from cbm_cli.errors import CbmError
from cbm_cli.grid.settings import Data, Experiment, Settings, Trial
from cbm_cli.results import Progress, Store, pretraining_id, run_id
from cbm_cli.trial.checks import check
from cbm_cli.trial.pretraining import pretraining_facts
from cbm_cli.trial.recorders import is_own, load_recorder
from cbm_cli.trial.start import total_updates


@dataclass(frozen=True)
class Job:
    """A trial to run, its data set, and every experiment that wants its outcome."""

    trial: Trial
    run_id: str
    data: Dataset
    stores: tuple[Store, ...]
    pretraining: str | None = None  # name of its pre-trained layers, which other trials may share
    sources: dict[str, str] = field(default_factory=dict)  # of a user's own recorders, by name

    @property
    def key(self) -> tuple[str, int]:
        """What tells this trial from all others."""
        return self.run_id, self.trial.number

    def since(self) -> Progress | None:
        """Where an earlier run left this trial, or another one its pre-training."""
        if not self.stores:
            return None
        found = self.stores[0].progress(*self.key)
        if found is None and self.pretraining:
            layers = self.stores[0].pretrained(self.pretraining, self.trial.number)
            found = Progress(None, stage=self.stages, pretrained=layers) if layers else None
        return found

    @property
    def stages(self) -> int:
        """Layers that are pre-trained, where any are."""
        return self.trial.settings.model.layers - 1

    @property
    def updates(self) -> int:
        """Length of the whole training."""
        return total_updates(self.trial.settings, self.data)

    @property
    def title(self) -> str:
        """A few words for progress and messages."""
        settings = self.trial.settings
        return (
            f"{settings.data.title} {settings.offsets} {settings.sampler_name} {settings.learning_rate} "
            f"trial {self.trial.number}"
        )


@dataclass
class Agenda:
    """What a run has to do.

    Attributes
    ----------
    jobs : list of Job
        To run, each distinct trial once, trial 0 of every cell first.
    done : int
        Finished before, or in another experiment with the very same settings.
    resumed : int
        Jobs that go on where an earlier run left them.
    damaged : list of str
        Trials whose files are not as they were written; they are among the jobs.
    """

    experiments: list[Experiment]
    stores: dict[str, Store]
    run_ids: dict[str, list[str]]
    datasets: dict[Data, Dataset]
    jobs: list[Job] = field(default_factory=list)
    done: int = 0
    resumed: int = 0
    damaged: list[str] = field(default_factory=list)
    folder: Path = Path()  # what the paths of a user's own data are relative to
    sources: dict[str, str] = field(default_factory=dict)  # of a user's own recorders, by name

    @property
    def total(self) -> int:
        """All trials of all experiments."""
        return sum(experiment.trials * len(experiment.cells) for experiment in self.experiments)

    def upper_bounds(self, experiment: Experiment) -> dict[str, float]:
        """Best possible log-likelihood per sample, by title of the data set, where it is known."""
        sets = {cell.data.title: self.datasets[cell.data] for cell in experiment.cells}
        return {title: data.upper_bound for title, data in sets.items() if data.upper_bound is not None}


def make_agenda(
    experiments: Sequence[Experiment], root: Path, adopt: bool = True, folder: Path = Path()
) -> Agenda:
    """Load the data sets, check every cell against them, and find what is done.

    Parameters
    ----------
    root : Path
        The results folder.
    adopt : bool
        Copy trials that another experiment in ``root`` has finished with the very same settings.
    folder : Path
        What the paths of a user's own data are relative to: the folder of the grid.

    Raises
    ------
    CbmError
        All cells that cannot be run, at once; a missing data file; an unusable results folder.
    """
    if root.exists() and not root.is_dir():
        raise CbmError(f"{root}: is a file; choose another folder with -o")
    datasets = {cell.data: None for experiment in experiments for cell in experiment.cells}
    datasets = {data: load(**data.model_dump(), folder=folder) for data in datasets}
    sources = _check_cells(experiments, datasets, folder)
    agenda = Agenda(
        [*experiments],
        {experiment.name: Store(root / experiment.name) for experiment in experiments},
        {
            experiment.name: [
                run_id(cell, experiment.seed, datasets[cell.data].digest, _own(cell, sources))
                for cell in experiment.cells
            ]
            for experiment in experiments
        },
        datasets,
        folder=folder,
        sources=sources,
    )
    _find_jobs(agenda, root, adopt)
    return agenda


def _check_cells(
    experiments: Sequence[Experiment], datasets: dict[Data, Dataset], folder: Path
) -> dict[str, str]:
    """Check every cell against its data; return the sources of the user's own recorders, by name."""
    problems: dict[str, None] = {}
    sources: dict[str, str] = {}
    for experiment in experiments:
        for cell in experiment.cells:
            try:
                check(cell, datasets[cell.data])
                for name in filter(is_own, cell.record.names):
                    sources[name] = sources.get(name) or load_recorder(name, folder)
            except CbmError as error:
                problems[f"{experiment.name}: {error}"] = None
    if problems:
        raise CbmError("\n".join(problems))
    return sources


def _own(cell: Settings, sources: dict[str, str]) -> dict[str, str]:
    return {name: sources[name] for name in cell.record.names if name in sources}


def _find_jobs(agenda: Agenda, root: Path, adopt: bool) -> None:
    finished = _Finished(root, agenda)
    wanted: dict[tuple[str, int], tuple[Trial, list[Store]]] = {}
    for experiment in agenda.experiments:
        store, ids = agenda.stores[experiment.name], agenda.run_ids[experiment.name]
        for index, trial in enumerate(experiment):
            name = ids[index % len(ids)]
            if finished.whole(store, name, trial.number):
                agenda.done += 1
            elif adopt and (other := finished.elsewhere(store, name, trial.number)):
                store.adopt(other, name, trial.number)
                agenda.done += 1
            else:
                wanted.setdefault((name, trial.number), (trial, []))[1].append(store)
    jobs = [_job(agenda, trial, name, stores) for (name, _), (trial, stores) in wanted.items()]
    agenda.jobs = _in_order(jobs)
    for job in agenda.jobs:
        _check_progress(job, agenda)


def _job(agenda: Agenda, trial: Trial, name: str, stores: list[Store]) -> Job:
    settings, data = trial.settings, agenda.datasets[trial.settings.data]
    facts = pretraining_facts(settings)
    shared = pretraining_id(facts, trial.base_seed, data.digest) if facts else None
    return Job(trial, name, data, tuple(stores), shared, _own(settings, agenda.sources))


def _in_order(jobs: list[Job]) -> list[Job]:
    """Trial 0 of every cell first; of those that share pre-trained layers one each, then the others."""
    seen: Counter[tuple[str, int]] = Counter()
    turns = []
    for job in jobs:
        shared = (job.pretraining or job.run_id, job.trial.number)
        turns.append((seen[shared] > 0, job.trial.number))
        seen[shared] += 1
    return [job for _, job in sorted(zip(turns, jobs, strict=True), key=lambda pair: pair[0])]


def _check_progress(job: Job, agenda: Agenda) -> None:
    try:
        agenda.resumed += job.since() is not None
    except CbmError as error:
        agenda.damaged.append(str(error))
        job.stores[0].forget_progress(*job.key)


class _Finished:
    """Which trials are done and whole, in every experiment of a results folder."""

    def __init__(self, root: Path, agenda: Agenda) -> None:
        names = {path.name for path in root.iterdir() if path.is_dir()} if root.exists() else set()
        self.stores = {name: Store(root / name) for name in sorted(names | set(agenda.stores))}
        self.damaged = agenda.damaged
        self._numbers: dict[tuple[str, str], set[int]] = {}

    def whole(self, store: Store, run_id: str, number: int) -> bool:
        if number not in self._finished(store, run_id):
            return False
        problem = store.damaged(run_id, number)
        if problem:
            self.damaged.append(problem)
        return problem is None

    def elsewhere(self, store: Store, run_id: str, number: int) -> Store | None:
        for other in self.stores.values():
            if (
                other != store
                and number in self._finished(other, run_id)
                and not other.damaged(run_id, number)
            ):
                return other
        return None

    def _finished(self, store: Store, run_id: str) -> set[int]:
        key = (store.experiment, run_id)
        if key not in self._numbers:
            self._numbers[key] = store.finished(run_id)
        return self._numbers[key]

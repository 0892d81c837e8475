"""One experiment's folder of results: writing trials, knowing which are finished,
reading them.
"""

import csv
import hashlib
import io
import math
import platform
import re
import warnings
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.metadata import version
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from cbm_cli.arrays import MOST_BYTES, located, npz_of, read_npz
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.kernels import KERNEL_VERSION
from cbm_cli.results.columns import Columns
from cbm_cli.results.journal import (
    FORMAT,
    Journal,
    Line,
    LineHead,
    Manifest,
    Row,
    Run,
    TrialKey,
    sealed,
    unsealed,
)
from cbm_cli.results.outcome import MachineArrays, Outcome, Progress
from cbm_cli.results.writing import (
    EXPORTS,
    FOLDERS,
    PART,
    write_atomically,
    write_if_changed,
)
from cbm_cli.text import not_computed
from cbm_cli.version import __version__

if TYPE_CHECKING:
    import pandas as pd

    from cbm_cli.grid.settings import Data, Experiment, Trial

SMALL = 1 << 16  # bytes of a machine that still goes into a line
_WHOLE = ("update", "epoch")  # columns of whole numbers, where they are whole
_NOT_FINITE = {"nan": None, "inf": math.inf, "-inf": -math.inf}  # which JSON lacks
_STATE = re.compile(r"trial-(\d{3,})-([0-9a-f]{10})\.npz", re.ASCII)


class SavedState(NamedTuple):
    """Place from which a training continues: in the middle, or at the end of a long
    one.
    """

    path: Path
    course: str  # the name that shorter and longer trainings share
    run_id: str
    trial: int


@dataclass(frozen=True)
class Store:
    """The folder ``results/<experiment>/``: the only place that knows the names and
    formats of its files.
    """

    folder: Path

    @cached_property
    def journal(self) -> Journal:
        """The lines of the trials."""
        return Journal(self.folder / "trials.jsonl")

    @property
    def experiment(self) -> str:
        """Name of the experiment."""
        return self.folder.name

    @property
    def _manifest(self) -> Path:
        return self.folder / "manifest.json"

    # Writing

    def begin(self) -> None:
        """Refuse to write where something else is; CbmError."""
        self.check_format()
        for path in (self.folder / name for name in (*FOLDERS, *EXPORTS)):
            if path.exists() and not path.is_dir():
                raise CbmError(
                    f"{path}: is a file where results need a folder; move it away"
                )

    def check_format(self) -> None:
        """Refuse results that another version of cbm wrote in another form, but no
        damaged ones; CbmError.
        """
        with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            manifest = msgspec.json.decode(self._manifest.read_bytes())
            if manifest["format"] != FORMAT:
                told = (
                    f"was written by cbm {manifest['versions']['cbm']} in another form"
                )
                remedy = (
                    "use that version, or run the grid again into another folder "
                    "with -o"
                )
                raise CbmError(f"{self.folder}: {told}; {remedy}")

    def write(
        self,
        run_id: str,
        trial: "Trial",
        outcome: Outcome,
        course: str = "",
        start: str = "",
    ) -> None:
        """Write a finished trial.

        ``course`` is the run-id without the length of training, under which longer
        trainings find the end of this one; ``start`` the SHA-256 of the machine file
        that the trial started from.
        """
        number, made = trial.number, _versions() | outcome.computer
        row: dict[str, Any] = {
            f"n_{part}": rows for part, rows in outcome.rows.items()
        } | outcome.summary()
        row |= {
            "diverged": outcome.diverged,
            "epochs_to_convergence": outcome.converged,
        }
        line = Line(
            run_id,
            number,
            "finished",
            round(outcome.seconds, 3),
            seed=trial.seed,
            start=start,
        )
        line.made, line.row = (
            made,
            {name: _as_json(value) for name, value in row.items()},
        )
        line.curve = by_column(outcome.columns, outcome.curve)
        line.records = by_column(outcome.recorded, outcome.records)
        for kind, machine in (
            ("machine", outcome.machine),
            ("best", outcome.best_machine),
        ):
            if machine and len(content := npz_of(machine)) < SMALL:
                setattr(line, kind, zlib.compress(content))
            elif machine:
                write_atomically(self._machine_file(run_id, number, kind), content)
                line.files[kind] = hashlib.sha256(content).hexdigest()
        state = self.state_path(course, run_id, number)
        end = outcome.end if course else None
        if end:
            arrays: Any = replace(end, seconds=0.0).arrays(start)
            np.savez_compressed(stream := io.BytesIO(), **arrays)
            write_atomically(state, stream.getvalue())
        self.journal.append(line)
        if not end and state.exists():
            with suppress(CbmError):  # it is tried again, and the state stays
                self.journal.flush()
                state.unlink()

    def add_columns(self, run_id: str, number: int, columns: Mapping[str, Any]) -> None:
        """Add columns to the row of a finished trial, or replace columns of the same
        name.
        """
        line = self.line(run_id, number)
        line.row |= {name: _as_json(value) for name, value in columns.items()}
        self.journal.append(line)

    def write_failure(self, run_id: str, number: int, details: str) -> None:
        """Write what went wrong in a trial."""
        self.journal.append(Line(run_id, number, "failed", details=details))

    def write_progress(
        self, run_id: str, number: int, progress: Progress, course: str, start: str = ""
    ) -> None:
        """Write the state of an unfinished trial; ``course`` and ``start`` as for
        `write`.
        """
        write_atomically(
            self.state_path(course, run_id, number), npz_of(progress.arrays(start))
        )

    def write_pretrained(
        self, pretraining: str, number: int, machine: MachineArrays
    ) -> None:
        """Write the layers that a trial has pre-trained, for all trials that share
        them.
        """
        if machine and not self.pretrained(pretraining, number):
            write_atomically(
                self._file("checkpoints", pretraining, number), npz_of(machine)
            )

    def write_manifest(
        self,
        experiment: "Experiment",
        run_ids: Mapping[str, str],
        datasets: Mapping["Data", Dataset],
        folder: Path = Path(),
    ) -> None:
        """Write the resolved grid and its folder, the versions and the computer.

        ``run_ids`` are those of the cells, with their courses; ``datasets`` are at
        least theirs.
        """
        from cbm_cli.kernels.computer import computer

        others, courses = list[Run](), dict(run_ids)
        with suppress(CbmError):  # there is no manifest yet, or it is damaged
            before, kept = self.manifest(), self.lines().keys() - {*run_ids}
            others = [
                run for run in (*before.others, *before.cells) if run.run_id in kept
            ]
            courses |= {
                run_id: course
                for run_id, course in before.courses.items()
                if run_id in kept
            }
        bounds, digests = (
            defaultdict[str, set[float | None]](set),
            defaultdict[str, set[str]](set),
        )
        for spec in dict.fromkeys(
            cell.data for cell in experiment.cells
        ):  # sizes of one set share a title
            bounds[spec.title].add(datasets[spec].upper_bound)
            digests[spec.title].add(datasets[spec].digest)
        manifest = Manifest(
            format=FORMAT,
            versions=_versions() | {"scipy": version("scipy")},
            experiment=experiment.name,
            description=experiment.description,
            trials=experiment.trials,
            seed=experiment.seed,
            table=experiment.table,
            cells=[
                Run(run_id, settings)
                for run_id, settings in zip(run_ids, experiment.cells, strict=True)
            ],
            others=others,
            courses=courses,
            upper_bounds={
                title: bound
                for title, (bound, *more) in bounds.items()
                if bound and not more
            },
            digests={title: sorted(its) for title, its in digests.items()},
            grid_folder=str(folder.resolve()),
            machine={"system": platform.platform(), "python": platform.python_version()}
            | computer(),
        )
        write_if_changed(self._manifest, sealed(manifest, indent=1))
        for left in self.folder.glob(PART):  # by a kill before there was a manifest
            left.unlink()

    def flush(self) -> None:
        """Write what waits to be written."""
        self.journal.flush()

    def export(self) -> None:
        """Write ``summary.csv``, and the curves and records of each run, for others to
        read.
        """
        self.journal.flush()
        summary, asked = (
            self.folder / "summary.csv",
            {run.run_id: run.row for run in self.manifest().cells},
        )
        known = {self.folder / "curves" / f"{run_id}.csv" for run_id in self.lines()}
        known |= {
            self.folder / "records" / f"{it}.csv"
            for it in asked
            if asked[it]["record_what"]
        }
        is_current = _changed(summary) > max(_changed(self._manifest), self.changed())
        if is_current and all(path.exists() and path.stat().st_size for path in known):
            return
        for run_id, of in self.lines().items():
            lines = [
                *self.journal.lines(
                    (run_id, number) for number in sorted(of) if of[number].finished
                )
            ]
            for folder, kind in EXPORTS.items():
                tables = {
                    one.trial: table for one in lines if (table := getattr(one, kind))
                }
                names = dict.fromkeys(it for table in tables.values() for it in table)
                columns = {
                    n: [table.get(it, repeat("")) for it in names]
                    for n, table in tables.items()
                }
                rows = (
                    (n, *row)
                    for n, its in columns.items()
                    for row in zip(*its, strict=False)
                )
                if tables:
                    path = self.folder / folder / f"{run_id}.csv"
                    write_if_changed(
                        path, _csv_of(["trial", *names], rows), at_once=False
                    )
        found = [*self.rows(asked)]
        settings_of = Columns([*asked.values()])
        own = ["experiment", "run_id", "trial", "seed", *settings_of.varying()]
        settings = {"run_id", *settings_of.names}
        names = dict.fromkeys(
            (*own, *(name for row in found for name in row if name not in settings))
        )
        whole = ({**asked[row["run_id"]], **row} for row in found)
        texts = ([not_computed(row.get(name)) for name in names] for row in whole)
        write_atomically(summary, _csv_of(names, texts))

    def finish(self) -> None:
        """Write the exports, and the journal in the grid's order, without lines that no
        longer count.
        """
        self.journal.flush(tries=3)
        asked = [run.run_id for run in self.manifest().cells]
        lines = self.lines()
        runs = [run for run in dict.fromkeys([*asked, *sorted(lines)]) if run in lines]
        self.journal.rewrite(
            (run, number) for run in runs for number in sorted(lines[run])
        )
        self.export()

    # Reading

    def manifest(self) -> Manifest:
        """Return the grid that was last run; CbmError if it is missing or damaged."""
        again = "cbm run with its grid writes it again and keeps finished trials"
        try:
            self.check_format()
            return unsealed(self._manifest.read_bytes(), Manifest)
        except FileNotFoundError:
            raise CbmError(f"{self._manifest}: missing; {again}") from None
        except (ValueError, TypeError):
            raise CbmError(f"{self._manifest}: damaged; {again}") from None
        except OSError as error:
            raise CbmError(
                f"{self._manifest}: cannot be read: {error.strerror}"
            ) from None

    def summary(self) -> "pd.DataFrame":
        """Return one row per finished trial of the grid that was last run, in the
        grid's order.
        """
        import pandas as pd

        cells = {run.run_id: run.settings.row() for run in self.manifest().cells}
        for problem in self.damaged().values():
            warnings.warn(f"{problem}; cbm run repeats what is lost", stacklevel=2)
        rows = [*self.rows(cells)]
        found = pd.DataFrame(
            rows, columns=None if rows else ["experiment", "run_id", "trial", "seed"]
        )
        shown = pd.DataFrame([*cells.values()], [*cells]).loc[found["run_id"]]
        whole = pd.concat(
            [found.iloc[:, :4], shown.set_index(found.index), found.iloc[:, 4:]], axis=1
        )
        return whole.astype(
            {name: float for name in whole if len(whole) and whole[name].isna().all()}
        )

    def rows(self, runs: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Yield the rows of the finished trials of runs, but for their settings."""
        its, versions = (
            self.lines(),
            [(name, f"{name}_version") for name in _versions()],
        )
        known = ((run, number) for run in runs for number in sorted(its.get(run, {})))
        keys = ((run, number) for run, number in known if its[run][number].finished)
        for one in self.journal.lines(keys, Row):
            row = {
                "experiment": self.experiment,
                "run_id": one.run_id,
                "trial": one.trial,
                "seed": one.seed,
            }
            row |= {
                name: _NOT_FINITE.get(value, value) for name, value in one.row.items()
            }
            row["seconds"] = one.seconds
            yield row | {
                column: str(one.made.get(name, "")) for name, column in versions
            }

    def nothing_yet(self) -> IncompleteError:
        """Return the error that no trial is finished."""
        lost = not self.journal.path.exists() and any(
            (self.folder / "curves").glob("*.csv")
        )
        told = (
            "trials.jsonl is missing; restore it, or"
            if lost
            else "no trial is finished yet;"
        )
        return IncompleteError(f"{self.folder}: {told} start with: cbm run")

    def lines(self) -> Mapping[str, Mapping[int, LineHead]]:
        """Return the facts of trials by run-id and number, without the rest of their
        lines.
        """
        return self.journal.read().runs

    def runs(self) -> set[str]:
        """Return the run-ids with a line, with the state of an unfinished trial, or of
        the grid last run.
        """
        asked = set[str]()
        with suppress(CbmError):  # its manifest is missing or damaged
            asked = {run.run_id for run in self.manifest().cells}
        return {*self.lines(), *(state.run_id for state in self.states()), *asked}

    def finished(self, run_id: str) -> frozenset[int]:
        """Return the numbers of the finished trials of a run."""
        return frozenset(
            number
            for number, line in self.lines().get(run_id, {}).items()
            if line.finished
        )

    def failed(self, run_id: str) -> frozenset[int]:
        """Return the numbers of the failed trials of a run."""
        return frozenset(self.lines().get(run_id, {})) - self.finished(run_id)

    def interrupted(self) -> set[TrialKey]:
        """Return the trials that have a state and are not finished."""
        lines = self.lines()
        interrupted = set()
        for state in self.states():
            line = lines.get(state.run_id, {}).get(state.trial)
            if line is None or not line.finished:
                interrupted.add((state.run_id, state.trial))
        return interrupted

    def failure(self, run_id: str, number: int) -> str:
        """Return what went wrong in a failed trial."""
        return next(self.journal.lines([(run_id, number)])).details

    def changed(self) -> int:
        """Return when a trial was last written, in nanoseconds."""
        return _changed(self.journal.path)

    def damaged(self) -> Mapping[TrialKey, str]:
        """Return what lines are damaged, by trial or, where that is unknown, by ``""``
        and number.
        """
        return self.journal.read().damaged

    def problem(self, line: LineHead) -> str:
        """Return what is wrong with the files of a finished trial, or nothing."""
        try:
            for kind in line.files:
                self.machine_of(line, kind)
        except CbmError as error:
            return str(error)
        return ""

    def line(self, run_id: str, number: int) -> Line:
        """Return the line of a finished trial; CbmError if it is missing or damaged."""
        for line in self.journal.lines([(run_id, number)]):
            if line.finished:
                return line
        told = f"trial {number} of {run_id} is damaged or missing; cbm run repeats it"
        raise CbmError(f"{self.journal.path}: {told}")

    def curves(self, run_id: str, numbers: Iterable[int]) -> "list[pd.DataFrame]":
        """Return the curves of trials of a run: update, epoch, <part>_<metric>, in nats
        per sample.
        """
        keys = [(run_id, int(number)) for number in numbers]
        found = [_frame(one.curve) for one in self.journal.lines(keys) if one.curve]
        if len(found) < len(keys):
            raise IncompleteError(
                f"{self.folder}: keeps no curves of {run_id}; repeat it in another "
                "folder"
            )
        return found

    def records(self, run_id: str, numbers: Iterable[int]) -> "list[pd.DataFrame]":
        """Return what was recorded of trials of a run: update, then the columns of its
        recorders, if any.
        """
        return [
            _frame(self.line(run_id, int(number)).records or {"update": []})
            for number in numbers
        ]

    def machine(
        self, run_id: str, number: int, best: bool = False
    ) -> tuple[Path, bytes]:
        """Return the name and the NPZ file of a trial's machine, final or best-valid;
        CbmError without it.
        """
        line, kind = self.line(run_id, number), "best" if best else "machine"
        name = self.folder.parent / f"{run_id}:{number}{':best' * best}"
        if kind not in (there := self.machines_in(line)):
            told = "holds no best-valid machine" if there else "keeps no machine"
            raise CbmError(f"{name}: {self.folder} {told} of this trial")
        if kind in line.files:
            name = self._machine_file(run_id, number, kind)
        return name, self.machine_of(line, kind)

    def machine_of(self, line: LineHead, kind: str) -> bytes:
        """Return a machine of a line, or the file that it names; CbmError if that has
        changed.
        """
        path = self._machine_file(line.run_id, line.trial, kind)
        with located(path, "machine"):
            if kind not in line.files:
                unpacking = zlib.decompressobj()
                content = unpacking.decompress(getattr(line, kind), MOST_BYTES)
                if not unpacking.eof:
                    raise ValueError("cut short, or huge")
                return content
            content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != line.files[kind]:
            raise CbmError(f"{path}: was cut short or changed after it was written")
        return content

    def machines_in(self, line: Line) -> list[str]:
        """Return which machines of a trial are kept: the final ``machine``, and the
        ``best``-valid one.
        """
        return [
            kind
            for kind in ("machine", "best")
            if kind in line.files or getattr(line, kind)
        ]

    def _machine_file(self, run_id: str, number: int, kind: str) -> Path:
        return self._file("machines", run_id, number, ".best" if kind == "best" else "")

    def _file(self, kind: str, run: str, number: int, ending: str = "") -> Path:
        return Path(self.folder, kind, run, f"trial-{number:03d}{ending}.npz")

    # Where trainings go on

    def state_path(self, course: str, run_id: str, number: int) -> Path:
        """Return the path of the state of a trial: of an unfinished one, or at the end
        of a long one.
        """
        return self._file("checkpoints", course, number, f"-{run_id[-10:]}")

    def states(self) -> list[SavedState]:
        """Return the states that there are."""
        paths = sorted((self.folder / "checkpoints").glob("*/trial-*.npz"))
        known = (
            (path, path.parent.name, match)
            for path in paths
            if (match := _STATE.fullmatch(path.name))
        )
        return [
            SavedState(path, it, f"{it[:-10]}{match[2]}", int(match[1]))
            for path, it, match in known
        ]

    def pretrained(self, pretraining: str, number: int) -> MachineArrays:
        """Return the layers that a trial with the same pre-training has written; none
        if there are none.
        """
        with suppress(CbmError):
            return read_npz(self._file("checkpoints", pretraining, number))
        return {}


@cache
def _versions() -> dict[str, Any]:
    """The versions that decide what a trial results in."""
    return {"cbm": __version__, "kernel": KERNEL_VERSION} | {
        it: version(it) for it in ("numpy", "numba")
    }


def _changed(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def _as_json(value: Any) -> Any:
    """A value as JSON can hold it."""
    value = value.item() if isinstance(value, np.generic) else value
    return (
        str(value) if isinstance(value, float) and not math.isfinite(value) else value
    )


def by_column(columns: Sequence[str], rows: np.ndarray | None) -> dict[str, list]:
    """Return the rows of a curve or of records by column, as a line holds them; nothing
    without rows.
    """
    pairs = [] if rows is None else zip(columns, rows.T.tolist(), strict=True)
    return {
        name: [
            int(it) if name in _WHOLE and it % 1 == 0 else _as_json(it) for it in column
        ]
        for name, column in pairs
    }


def _frame(table: dict[str, list]) -> "pd.DataFrame":
    import pandas as pd

    kept = {
        name: np.array(its, None if name in _WHOLE else float)
        for name, its in table.items()
    }
    return pd.DataFrame(kept)


def _csv_of(names: Iterable[str], rows: Iterable[Iterable[Any]]) -> bytes:
    writer = csv.writer(text := io.StringIO(), lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue().encode()

"""One experiment's folder of results: writing trials, knowing which are finished, reading them."""

import csv
import hashlib
import io
import json
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from cbm_cli.arrays import read_npz
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.errors import CbmError, IncompleteError
from cbm_cli.kernels import KERNEL_VERSION
from cbm_cli.results.contents import SMALL, TEXTS, as_text, content_of, csv_of, joined, npz, read_summary
from cbm_cli.results.journal import Journal, Line, record_of
from cbm_cli.results.journal import Trial as Key
from cbm_cli.results.manifest import check_format, read_manifest, version_of, write_manifest
from cbm_cli.results.outcome import Machine, Outcome, Progress, read_progress
from cbm_cli.results.writing import EXPORTS, KINDS, PART, replacing, write_atomically, write_if_changed
from cbm_cli.text import text_of
from cbm_cli.version import __version__

if TYPE_CHECKING:
    import pandas as pd

    from cbm_cli.grid.settings import Experiment, Trial

LONG = 60.0  # seconds of a training whose checkpoint is kept unasked
CHECKED = 1 << 26  # bytes of a journal that every reader of the summary has the time to check
_VERSIONS = ("cbm", "kernel", "numpy", "numba")
_MIXED = ("batch", "record_units")  # settings that are numbers or words
_FILE = re.compile(r"trial-(\d{3}|[1-9]\d{3,})(-\d+|\.best)?\.npz", re.ASCII)  # names of cbm's own files
_CHECKPOINT = re.compile(r"trial-(\d+)-(\d+)\.npz", re.ASCII)


@dataclass(frozen=True)
class Store:
    """The folder ``results/<experiment>/``: the only place that knows the names and formats of its files."""

    folder: Path
    keeps_checkpoints: bool = field(default=False, compare=False)  # of trainings of any length
    _told: set[tuple[str, str]] = field(default_factory=set, compare=False)  # facts written

    @cached_property
    def journal(self) -> Journal:
        """The records of the trials."""
        return Journal(self.folder / "trials.jsonl")

    @property
    def experiment(self) -> str:
        """Name of the experiment."""
        return self.folder.name

    @property
    def _manifest(self) -> Path:
        return self.folder / "manifest.json"

    @property
    def _summary(self) -> Path:
        return self.folder / "summary.csv"

    def place(self, kind: str, run: str, number: int, ending: str = "") -> Path:
        """Return the path of a file of a trial: of ``machines``, ``unfinished`` and so on."""
        return self.folder / kind / run / f"trial-{number:03d}{ending}.npz"

    # Writing

    def begin(self) -> None:
        """Refuse to write where something else is; CbmError."""
        if self.journal.packed.exists() and not self.journal.path.exists():
            remedy = f"choose another folder with -o, or first: gunzip {self.journal.packed}"
            raise CbmError(f"{self.folder}: holds kept results, for reading only; {remedy}", "conflict")
        self.check_format()
        for path in (self.folder / name for name in (*KINDS, *EXPORTS)):
            if path.exists() and not path.is_dir():
                raise CbmError(f"{path}: is a file where results need a folder; move it away", "conflict")

    def check_format(self) -> None:
        """Refuse results that another version of cbm wrote in its own way; CbmError."""
        with suppress(FileNotFoundError):
            check_format(self._manifest, self._manifest.read_bytes())

    def write(self, run_id: str, trial: "Trial", outcome: Outcome, course: str = "", start: str = "") -> None:
        """Write a finished trial.

        ``course`` is the run-id without the length of training, under which longer trainings find the end of
        this one; ``start`` the SHA-256 of the machine file that the trial started from.
        """
        number, files = trial.number, {}
        texts = {"curve": csv_of(outcome.columns, outcome.curve)}
        texts |= {"records": csv_of(outcome.recorded, outcome.records)} if outcome.records is not None else {}
        for kind, machine in (("machine", outcome.machine), ("best", outcome.best_machine)):
            if machine and len(content := npz(machine)) < SMALL:
                texts[kind] = content
            elif machine:
                write_atomically(self._machine_file(run_id, number, kind), content)
                files[kind] = _sha256(content)
        if course and outcome.end and (self.keeps_checkpoints or outcome.seconds > LONG):
            end = replace(outcome.end, seconds=0.0).arrays() | {"start": np.array(start)}
            path = self.place("checkpoints", course, number, f"-{outcome.end.update}")
            write_atomically(path, npz(end, compressed=True))
        row: dict[str, Any] = {
            f"n_{part}": outcome.rows[part] for part in ("train", "valid", "test") if part in outcome.rows
        }
        row |= {name: _plain(value) for name, value in outcome.summary().items()}
        row |= {"diverged": outcome.diverged, "epochs_to_convergence": outcome.converged}
        record = _head(run_id, number, "finished", outcome.seconds, files)
        record |= {"seed": trial.seed, "start": start, "row": row}
        record |= {kind: as_text(content) for kind, content in texts.items()}
        self._append(record, trial.settings.row(), {**_versions(), **outcome.computer})

    def _append(self, record: dict[str, Any], settings: Mapping[str, Any], made: Mapping[str, Any]) -> None:
        """Append a finished trial, and what is to be known of its cell and its computer."""
        run_id, number = record["run_id"], record["trial"]
        self._tell("cell", run_id, {"settings": settings})
        self._tell("made", made_id := _made_id(made), {"with": made})
        self.journal.append(record | {"made": made_id})
        if (state := self.state_path(run_id, number)).exists():
            with suppress(CbmError):  # it is tried again, and the state stays
                self.journal.flush()
                state.unlink()

    def _tell(self, kind: str, name: str, fact: Mapping[str, Any]) -> None:
        """Append what is to be known of a cell or a computer, once."""
        self._told.update(self._told or self.journal.index().facts)
        if (kind, name) not in self._told:
            self._told.add((kind, name))
            self.journal.append({kind: name, **fact})

    def add_columns(self, run_id: str, number: int, columns: Mapping[str, Any]) -> None:
        """Add columns to the row of a finished trial, or replace columns of the same name."""
        record = self._record(run_id, number)
        record["row"] |= {name: _plain(value) for name, value in columns.items()}
        self.journal.append(record)

    def adopt(self, other: "Store", run_id: str, number: int) -> None:
        """Copy a trial that another experiment has already finished with exactly the same settings."""
        record = other._record(run_id, number)
        for kind in record["files"]:
            path = self._machine_file(run_id, number, kind)
            write_atomically(path, other._content(record, kind))
        made = other.journal.fact("made", record["made"]).get("with", {})
        self._append(record, other.journal.fact("cell", run_id).get("settings", {}), made)

    def write_failure(self, run_id: str, number: int, details: str) -> None:
        """Write what went wrong in a trial."""
        self.journal.append(_head(run_id, number, "failed", 0.0, {}) | {"details": details})

    def write_progress(self, run_id: str, number: int, progress: Progress, start: str = "") -> None:
        """Write the progress of an unfinished trial; ``start`` as for `write`."""
        arrays = progress.arrays() | {"start": np.array(start)}
        write_atomically(self.state_path(run_id, number), npz(arrays))

    def write_pretrained(self, pretraining: str, number: int, machine: Machine) -> None:
        """Write the layers that a trial has pre-trained, for all trials that share them."""
        if machine and self.pretrained(pretraining, number) is None:
            write_atomically(self.place("pretrained", pretraining, number), npz(machine))

    def write_manifest(
        self,
        experiment: "Experiment",
        run_ids: Sequence[str],
        data: Sequence[tuple[str, Dataset]],
        commit: str | None,
        folder: Path = Path(),
    ) -> None:
        """Write what was asked for: the resolved grid and its folder, the versions and the computer.

        What damage to the journal has taken away of it is written there again.
        """
        from cbm_cli.kernels.computer import computer

        for left in self.folder.glob(PART):  # by a run that was killed before there was a manifest
            left.unlink(missing_ok=True)
        write_manifest(self._manifest, experiment, run_ids, data, commit, folder)
        if self.damaged():
            self._tell("made", _made_id(made := {**_versions(), **computer()}), {"with": made})
            for run_id, cell in zip(run_ids, experiment.cells, strict=True):
                self._tell("cell", run_id, {"settings": cell.row()})

    def flush(self) -> None:
        """Write what waits to be written."""
        self.journal.flush()

    def export(self) -> None:
        """Write ``summary.csv``, and the curves and records of each run, for others to read."""
        self.journal.flush()
        if self._current() is None:
            self.journal.append(self._write_exports(self._runs()))
            self.journal.flush()

    def finish(self) -> None:
        """Write the exports, and the journal in the grid's order, unless they are current.

        Records that do not count any more are left out.
        """
        self.journal.flush_last()
        index, runs = self.journal.index(), self._runs()
        there = sum(1 for folder in EXPORTS for _ in (self.folder / folder).glob("*.csv"))
        is_whole = there >= self.journal.last().get("tables", math.inf) and not index.damaged
        if is_whole and self._current() is not None:
            return
        seal = self._write_exports(runs)
        lines = [index.facts[fact] for fact in sorted(index.facts) if fact[0] == "made"]
        for run_id in runs:
            lines += [index.facts["cell", run_id]] if ("cell", run_id) in index.facts else []
            lines += [line for _, line in sorted(index.runs[run_id].items())]
        self.journal.rewrite(lines, seal)

    def _write_exports(self, runs: Mapping[str, Sequence[int]]) -> dict[str, Any]:
        """Write the exports of runs; return the record that says of what they are."""
        count = 0
        for run_id, numbers in runs.items():
            tables: dict[str, dict[int, bytes]] = {folder: {} for folder in EXPORTS}
            for record in self.journal.records((run_id, number) for number in numbers):
                for folder, kind in EXPORTS.items():
                    if kind in record:
                        tables[folder][record["trial"]] = self._content(record, kind)
            for folder in filter(tables.get, EXPORTS):
                write_if_changed(self.folder / folder / f"{run_id}.csv", joined(tables[folder]))
                count += 1
        with replacing(self._summary) as stream:
            self._write_summary(stream, runs)
            stream.seek(0)
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return {"exports": digest, "cells": self._cells_digest(), "tables": count}

    def _runs(self) -> dict[str, list[int]]:
        """Finished trials by run, the runs of the grid first, in its order."""
        found = self.lines()
        names = dict.fromkeys([*(cell["run_id"] for cell in self.manifest()["cells"]), *sorted(found)])
        return {name: sorted(self.finished(name)) for name in names if name in found}

    def _write_summary(self, stream: IO[bytes], runs: Mapping[str, Sequence[int]]) -> None:
        """Write a row for each trial of the runs that the grid asks for: settings that vary, then results."""
        cells = self.manifest()["cells"]
        asked = {cell["run_id"] for cell in cells}
        keys = [(run_id, number) for run_id in runs if run_id in asked for number in runs[run_id]]
        settings = {name for cell in cells for name in cell if name != "run_id"}
        left_out = {name for name in settings if len({text_of(cell.get(name)) for cell in cells}) == 1}
        names = dict.fromkeys(("experiment", "run_id", "trial", "seed"))
        for row in self.rows(keys):  # twice, as they may not fit into memory
            names |= dict.fromkeys(row)
        text = io.TextIOWrapper(stream, "utf-8", newline="")
        writer = csv.DictWriter(
            text, [name for name in names if name not in left_out], extrasaction="ignore", lineterminator="\n"
        )
        writer.writeheader()
        for row in self.rows(keys):
            missing = {name: "" for name in row.keys() - settings if row[name] == "nan" and name not in TEXTS}
            writer.writerow(row | missing)
        text.detach()

    # Reading

    def manifest(self) -> dict[str, Any]:
        """Return the grid that was last run: description, trials, table, cells, upper_bounds, versions."""
        return read_manifest(self._manifest)

    def summary(self) -> "pd.DataFrame":
        """Return one row per finished trial of the grid that was last run, in the grid's order.

        They come from the journal where ``summary.csv`` is missing, damaged or older, and where the journal
        is damaged. Settings that it leaves out, as they do not vary, are those of the manifest.
        """
        content = self._current()
        damaged = self.damaged(torn=False) if content is None or self._is_soon_checked() else {}
        if content is None or damaged:
            for problem in damaged.values():
                warnings.warn(f"{problem}; cbm run repeats what is lost", stacklevel=2)
            self._write_summary(made := io.BytesIO(), self._runs())
            content = made.getvalue()
        return self._with_settings(read_summary(content))

    def nothing_yet(self) -> IncompleteError:
        """Return the error that no trial is finished."""
        return IncompleteError(f"{self.folder}: no trial is finished yet; start with: cbm run")

    def _is_soon_checked(self) -> bool:
        return self.journal.path.exists() and self.journal.path.stat().st_size <= CHECKED

    def _current(self) -> bytes | None:
        """The text of ``summary.csv`` if the last record of the journal names it and the cells."""
        last = self.journal.last()
        with suppress(OSError, KeyError):
            content = self._summary.read_bytes()
            if (last["exports"], last["cells"]) == (_sha256(content), self._cells_digest()):
                return content
        return None

    def _cells_digest(self) -> str:
        return _sha256(json.dumps(self.manifest()["cells"]).encode())

    def _with_settings(self, frame: "pd.DataFrame") -> "pd.DataFrame":
        import pandas as pd

        there, cells = {*frame["run_id"]}, {cell["run_id"]: cell for cell in self.manifest()["cells"]}
        names = dict.fromkeys(name for cell in cells.values() for name in cell)
        shown = (cells[run_id] for run_id in cells if run_id in there)
        given = [{name: value for name, value in cell.items() if value is not None} for cell in shown]
        table = pd.DataFrame(given, columns=names).set_index("run_id")
        mixed = {name: table[name].map(text_of, na_action="ignore") for name in _MIXED if name in table}
        settings = table.assign(**mixed).loc[frame["run_id"]].set_index(frame.index)
        rest = frame.iloc[:, 4:].drop(columns=settings.columns, errors="ignore")
        return pd.concat([frame.iloc[:, :4], settings, rest], axis=1)

    def runs(self) -> set[str]:
        """Return the run-ids with a record, or with the state of an unfinished trial."""
        return {*self.lines(), *self.folders("unfinished")}

    def folders(self, kind: str, run: str = "*") -> dict[str, list[Path]]:
        """Return the files of a kind by the run that they belong to, but for what links lead to."""
        found: dict[str, list[Path]] = {}
        for path in (self.folder / kind).glob(f"{run}/trial-*.npz"):
            is_elsewhere = path.parent.is_symlink() or path.parents[1].is_symlink()
            if _FILE.fullmatch(path.name) and path.is_file() and not is_elsewhere:
                found.setdefault(path.parent.name, []).append(path)
        return found

    def finished(self, run_id: str) -> frozenset[int]:
        """Return the numbers of the finished trials of a run."""
        lines = self.lines().get(run_id, {})
        return frozenset(number for number, line in lines.items() if line.finished)

    def unfinished(self, run_id: str) -> tuple[frozenset[int], frozenset[int]]:
        """Return the numbers of the interrupted and of the failed trials of a run."""
        done, files = self.finished(run_id), self.folders("unfinished", run_id).get(run_id, ())
        states = {int(path.stem[6:]) for path in files if path.stem[6:].isdigit()}
        return frozenset(states - done), frozenset(self.lines().get(run_id, {}).keys() - done)

    def failure(self, run_id: str, number: int) -> str:
        """Return what went wrong in a failed trial."""
        return str(next(self.journal.records([(run_id, number)])).get("details", ""))

    def changed(self) -> int:
        """Return when a trial was last written, in nanoseconds."""
        return self.journal.path.stat().st_mtime_ns if self.journal.path.exists() else 0

    def damaged(self, torn: bool = True) -> dict[Key, str]:
        """Return what lines are damaged, by trial or, where that is unknown, by ``""`` and number.

        A ``torn`` line at the end may be one that is being written.
        """
        index, found = self.journal.index(), {}
        for number, key in index.damaged.items():
            if number > index.lines and not torn:
                continue
            whose = f" (trial {key[1]} of {key[0]})" if key else ""
            found[key or ("", number)] = f"{self.journal.path}: line {number}{whose}: damaged"
        return found

    def lines(self) -> Mapping[str, Mapping[int, Line]]:
        """Return the newest records of trials by run and number, but for their content."""
        return self.journal.index().runs

    def problem(self, run_id: str, number: int, line: Line) -> str:
        """Return what is wrong with the files of a finished trial, or nothing."""
        try:
            for kind, digest in json.loads(line.files).items() if line.files != b"{}" else ():
                _checked(self._machine_file(run_id, number, kind), digest)
        except CbmError as error:
            return str(error)
        return ""

    def seconds(self) -> dict[str, list[float]]:
        """Return the times of finished trials by run, in all experiments of the results folder."""
        found: dict[str, list[float]] = {}
        for store in stores_in(self.folder.parent):
            for run_id, lines in store.lines().items():
                found.setdefault(run_id, []).extend(line.seconds for line in lines.values() if line.finished)
        return found

    def made(self, run_id: str, number: int) -> dict[str, str]:
        """Return what is known of the versions and of the computer that ran a finished trial."""
        return self.journal.fact("made", self._record(run_id, number).get("made", "")).get("with", {})

    def started_from(self, run_id: str, number: int) -> str:
        """Return the SHA-256 of the machine file that a finished trial started from, or an empty text."""
        return self._record(run_id, number)["start"]

    def _record(self, run_id: str, number: int) -> dict[str, Any]:
        """The record of a finished trial; CbmError if it is missing or damaged."""
        try:
            record = next(self.journal.records([(run_id, number)]))
            if record["state"] == "finished" and isinstance(record["row"], dict):
                return record
        except (KeyError, TypeError):
            pass
        told = f"{self.journal.path}: trial {number} of {run_id} is damaged or missing"
        raise CbmError(f"{told}; cbm run repeats it", "missing")

    def row(self, run_id: str, number: int) -> dict[str, Any] | None:
        """Return the row of one finished trial, or None with a warning if its record is damaged."""
        return next(self.rows([(run_id, number)]), None)

    def rows(self, keys: Iterable[Key]) -> Iterator[dict[str, Any]]:
        """Yield the rows of finished trials; those with damaged records are left out, with a warning."""
        fact = cache(self.journal.fact)
        with self.journal.reading() as (stream, index):
            for run_id, number in keys:
                try:
                    record = record_of(stream, index.runs[run_id][number], self.journal.path)
                    cell = fact("cell", run_id).get("settings", {})
                    made = fact("made", record["made"]).get("with", {})
                    yield {
                        "experiment": self.experiment,
                        "run_id": run_id,
                        "trial": number,
                        "seed": record["seed"],
                        **cell,
                        **record["row"],
                        "seconds": record["seconds"],
                        **{f"{name}_version": made.get(name) for name in _VERSIONS},
                    }
                except (CbmError, KeyError, TypeError):
                    told = f"{self.journal.path}: trial {number} of {run_id}: damaged"
                    warnings.warn(f"{told}; cbm run repeats this trial", stacklevel=3)

    def contents(self, run_id: str, number: int) -> dict[str, bytes]:
        """Return curve, records and machines of a finished trial: CSV and NPZ files."""
        record = self._record(run_id, number)
        kinds = ("curve", "records", "machine", "best")
        return {
            kind: self._content(record, kind) for kind in kinds if kind in record or kind in record["files"]
        }

    def tables(self, kind: str, run_id: str, numbers: Iterable[int]) -> dict[int, bytes]:
        """Return the ``curve`` or the ``records`` of trials of a run as CSV, where there are any."""
        records = self.journal.records((run_id, int(number)) for number in numbers)
        return {one["trial"]: self._content(one, kind) for one in records if kind in one}

    def curve(self, run_id: str, number: int) -> "pd.DataFrame":
        """Return the curve of one trial: update, epoch, <part>_<metric>; likelihoods in nats per sample."""
        return self.curves(run_id, [number])[0]

    def curves(self, run_id: str, numbers: Iterable[int]) -> "list[pd.DataFrame]":
        """Return the curves of several trials of a run, read as one file: pandas starts slowly."""
        numbers = [*numbers]
        try:
            found = self.tables("curve", run_id, numbers)
            contents = [found[number] for number in numbers]
        except KeyError:
            for number in {*numbers} - self.finished(run_id):
                self._record(run_id, number)  # says that it is damaged
            told = f"{self.folder}: keeps no curves of {run_id}; run it again, into another folder"
            raise IncompleteError(told) from None
        heads, _, bodies = zip(*(content.partition(b"\n") for content in contents), strict=True)
        if len({*heads}) == 1 and all(body[-1:] in (b"", b"\n") for body in bodies):
            ends = [0, *accumulate(body.count(b"\n") for body in bodies)]
            whole = self._parsed(heads[0] + b"\n" + b"".join(bodies), run_id)
            if len(whole) == ends[-1]:
                return [whole.iloc[first:last] for first, last in pairwise(ends)]
        return [self._parsed(content, run_id) for content in contents]

    def records(self, run_id: str, number: int) -> "pd.DataFrame":
        """Return what was recorded of one trial: update, then the columns of its recorders, if any."""
        return self._parsed(self.tables("records", run_id, [number]).get(number, b"update\n"), run_id)

    def _parsed(self, content: bytes, run_id: str) -> "pd.DataFrame":
        import pandas as pd

        try:
            return pd.read_csv(io.BytesIO(content))
        except ValueError as error:
            told = f"{self.journal.path}: {run_id}: is no table of numbers ({error})"
            raise CbmError(told, "unreadable") from None

    def machine(self, run_id: str, number: int, best: bool = False) -> tuple[Path, bytes]:
        """Return the name and the NPZ file of a trial's machine, final or best-valid; CbmError without it."""
        record, kind = self._record(run_id, number), "best" if best else "machine"
        if kind in record["files"]:
            return self._machine_file(run_id, number, kind), self._content(record, kind)
        name = self.folder.parent / f"{run_id}:{number}{':best' * best}"
        if kind not in record:
            told = "holds no best-valid machine" if best and "machine" in record else "keeps no machine"
            raise CbmError(f"{name}: {self.folder} {told} of this trial", "missing")
        return name, self._content(record, kind)

    def has_best(self, run_id: str, number: int) -> bool:
        """Whether the machine at the best validation value of a trial is kept."""
        record = self._record(run_id, number)
        return "best" in record or "best" in record["files"]

    def _machine_file(self, run_id: str, number: int, kind: str) -> Path:
        return self.place("machines", run_id, number, ".best" if kind == "best" else "")

    def _content(self, record: Mapping[str, Any], kind: str) -> bytes:
        """What a record holds, or the file that it names; CbmError if that has changed."""
        if kind in record["files"]:
            return _checked(
                self._machine_file(record["run_id"], record["trial"], kind), record["files"][kind]
            )
        try:
            return content_of(record[kind])
        except (ValueError, TypeError):
            told = f"{self.journal.path}: {kind} of trial {record['trial']} of {record['run_id']}"
            raise CbmError(f"{told}: cannot be read", "unreadable") from None

    # What is not finished

    def state_path(self, run_id: str, number: int) -> Path:
        """Return the path of the state of an unfinished trial."""
        return self.place("unfinished", run_id, number)

    def progress(self, run_id: str, number: int, start: str = "") -> Progress | None:
        """Read the progress of an unfinished trial; see `read_progress`."""
        return read_progress(self.state_path(run_id, number), start)

    def pretrained(self, pretraining: str, number: int) -> Machine | None:
        """Return the layers that a trial with the same pre-training has written, or None."""
        try:
            return read_npz(self.place("pretrained", pretraining, number))
        except CbmError:
            return None


def stores_in(root: Path) -> list[Store]:
    """Return the experiments of a results folder with any trial."""
    return [Store(path.parent) for path in sorted(root.glob("*/trials.jsonl"))]


def checkpoints_in(root: Path) -> dict[str, list[tuple[int, int, Path]]]:
    """Return the checkpoints of all experiments by their course: number of the trial, updates, file."""
    found: dict[str, list[tuple[int, int, Path]]] = {}
    for store in stores_in(root):
        for course, paths in store.folders("checkpoints").items():
            for match, path in ((_CHECKPOINT.fullmatch(path.name), path) for path in sorted(paths)):
                if match:
                    found.setdefault(course, []).append((int(match[1]), int(match[2]), path))
    return found


def _head(run_id: str, number: int, state: str, seconds: float, files: Mapping[str, str]) -> dict[str, Any]:
    """The beginning of a record, which an index reads."""
    about = {"run_id": run_id, "trial": number, "state": state, "seconds": round(seconds, 3)}
    return about | {"files": dict(files)}


def _versions() -> dict[str, Any]:
    versions = {"cbm": __version__, "kernel": KERNEL_VERSION}
    return versions | {name: version_of(name) for name in ("numpy", "numba")}


def _made_id(made: Mapping[str, Any]) -> str:
    return _sha256(json.dumps(made).encode())[:12]


def _checked(path: Path, digest: str) -> bytes:
    """The content of a file; CbmError if it is missing or has changed since it was written."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise CbmError(f"{path}: missing", "missing") from None
    except OSError as error:
        raise CbmError(f"{path}: cannot be read: {error.strerror}", "system") from None
    if _sha256(content) != digest:
        raise CbmError(f"{path}: was cut short or changed after it was written", "changed")
    return content


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _plain(value: float | str) -> float | str:
    return value if isinstance(value, str) or np.isfinite(value) else str(value)  # JSON has no -inf

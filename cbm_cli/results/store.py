"""One experiment's folder of results: writing trials, knowing which are finished, the summary."""

import csv
import hashlib
import io
import itertools
import json
import os
import platform
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from cbm_cli.archives import numbers_of
from cbm_cli.arrays import read_npz
from cbm_cli.errors import CbmError
from cbm_cli.kernels import KERNEL_VERSION
from cbm_cli.results.contents import csv_of, packed, read_csv, sealed, sha256, text_columns, unsealed
from cbm_cli.results.filing import SMALL, Filing
from cbm_cli.results.outcome import Machine, Outcome, Progress, read_progress
from cbm_cli.results.writing import KINDS, replacing, write_atomically, write_if_changed
from cbm_cli.version import __version__

if TYPE_CHECKING:
    import pandas as pd

    from cbm_cli.grid.settings import Experiment, Settings, Trial

FORMAT = 2  # of the files below; others are refused; 1 is of cbm 0.1.0
_UNREADABLE = (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile, zlib.error)
# The files of a finished trial; the CSV comes last, because it marks a trial finished.
_OF_A_TRIAL = (".npz", ".best.npz", ".records.csv", ".json", ".csv")
Keys = list[tuple[str, int]]  # run-ids and numbers of trials


@dataclass(frozen=True)
class Store:
    """The folder ``results/<experiment>/``: the only place that knows the names and formats of its files."""

    folder: Path
    together: bool = field(default=False, compare=False)  # keep small finished trials in archives
    files: Filing = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", Filing(self.folder))

    @property
    def experiment(self) -> str:
        """Name of the experiment."""
        return self.folder.name

    def path(self, run_id: str, number: int, suffix: str) -> Path:
        """Return the path of a trial's file: ``.csv`` (curve), ``.npz`` (machine) or ``.json`` (record).

        It may lead into an archive.
        """
        return self.files.path(_name(run_id, number, suffix))

    # Writing

    def write(self, run_id: str, trial: "Trial", outcome: Outcome, course: str = "", start: str = "") -> None:
        """Write a finished trial.

        ``course`` is the run-id without the length of training, under which longer trainings find the end of
        this one; ``start`` the SHA-256 of the machine file that the trial started from.
        """
        best, records = outcome.best_machine, outcome.records
        given = {
            ".npz": packed(outcome.machine),
            ".best.npz": packed(best) if best else None,
            ".records.csv": None if records is None else csv_of(outcome.recorded, records),
            ".csv": csv_of(outcome.columns, outcome.curve),
        }
        contents = {suffix: content for suffix, content in given.items() if content}
        record = {"format": FORMAT, "sha256": {suffix: sha256(c) for suffix, c in contents.items()}}
        record |= {"start_sha256": start} if start else {}
        record["computer"] = outcome.computer
        record["row"] = self._row(run_id, trial, outcome)
        ends = {}
        if course and outcome.end:
            end = replace(outcome.end, seconds=0.0).arrays() | {"start": np.array(start)}
            name = f"ends/{course}/trial-{trial.number:03d}-{outcome.end.update}.npz"
            ends[name] = packed(end, small=True)
        self._write(run_id, trial.number, contents | {".json": sealed(record)}, ends)
        for suffix in (".state.npz", ".error.txt"):
            (self.folder / _name(run_id, trial.number, suffix)).unlink(missing_ok=True)

    def _write(
        self,
        run_id: str,
        number: int,
        contents: Mapping[str, bytes],
        others: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        """Write files of a finished trial by their suffix, and before them others by their name."""
        own = filter(contents.__contains__, _OF_A_TRIAL)
        named = dict(others) | {_name(run_id, number, suffix): contents[suffix] for suffix in own}
        if self.together and sum(map(len, named.values())) <= SMALL:
            self.files.add(named)
            return
        for name, content in named.items():
            self.files.write(name, content)

    def _row(self, run_id: str, trial: "Trial", outcome: Outcome) -> dict[str, Any]:
        return {
            "experiment": self.experiment,
            "run_id": run_id,
            "trial": trial.number,
            "seed": trial.seed,
            **_settings_row(trial.settings),
            "n_train": outcome.rows["train"],
            **{f"n_{part}": outcome.rows[part] for part in ("valid", "test") if part in outcome.rows},
            **{name: _plain(value) for name, value in outcome.summary().items()},
            "diverged": outcome.diverged,
            "epochs_to_convergence": outcome.converged,
            "seconds": round(outcome.seconds, 3),
            "cbm_version": __version__,
            "kernel_version": KERNEL_VERSION,
            "numpy_version": _version("numpy"),
            "numba_version": _version("numba"),
        }

    def add_columns(self, run_id: str, number: int, columns: dict[str, float]) -> None:
        """Add columns to the row of a finished trial, or replace columns of the same name."""
        record = self._record(run_id, number)
        record["row"] |= {name: _plain(value) for name, value in columns.items()}
        name, content = _name(run_id, number, ".json"), sealed(record)
        if (self.folder / name).exists():
            self.files.write(name, content)
        else:  # it is in an archive
            self.files.add({name: content})

    def adopt(self, other: "Store", run_id: str, number: int) -> None:
        """Copy a trial that another experiment has already finished with exactly the same settings."""
        record = other._record(run_id, number)
        record["row"]["experiment"] = self.experiment
        contents = {suffix: other._read(run_id, number, suffix) for suffix in record["sha256"]}
        self._write(run_id, number, contents | {".json": sealed(record)})

    def pack(self) -> list[str]:
        """Pack small trials into archives, at the beginning and the end of a run; return what is damaged."""
        lost = {
            folder: {number for number in self.files.trials(folder) if self._problem(folder[7:], number)}
            for folder in self.files.damaged_archives()
            if folder.startswith("trials/")
        }
        return [f"{path}: damaged" for path in self.files.pack(self.together, lost)]

    def write_failure(self, run_id: str, number: int, details: str) -> None:
        """Write what went wrong in a trial, into the folder of its results."""
        self.files.write(_name(run_id, number, ".error.txt"), details.encode())

    def write_progress(self, run_id: str, number: int, progress: Progress, start: str = "") -> None:
        """Write the progress of an unfinished trial; ``start`` as for `write`."""
        arrays = progress.arrays() | {"start": np.array(start)}
        self.files.write(_name(run_id, number, ".state.npz"), packed(arrays))

    def write_pretrained(self, pretraining: str, number: int, machine: Machine) -> None:
        """Write the layers that a trial has pre-trained, for all trials that share them."""
        path = self._pretrained_path(pretraining, number)
        if machine and not path.exists():
            write_atomically(path, packed(machine))

    def write_manifest(
        self,
        experiment: "Experiment",
        run_ids: Sequence[str],
        upper_bounds: dict[str, float],
        commit: str | None,
        folder: Path = Path(),
    ) -> None:
        """Write what was asked for: the resolved grid and its folder, the versions and the computer."""
        from cbm_cli.kernels.computer import computer

        for place in (self.folder / name for name in (*KINDS, "recent")):
            if place.exists() and not place.is_dir():
                raise CbmError(f"{place}: is a file where results need a folder; move it away", "conflict")
        manifest = {
            "format": FORMAT,
            "experiment": experiment.name,
            "description": experiment.description,
            "trials": experiment.trials,
            "seed": experiment.seed,
            "table": experiment.table.model_dump(mode="json"),
            "cells": [
                {"run_id": name} | cell.row() for name, cell in zip(run_ids, experiment.cells, strict=True)
            ],
            # what rebuilds the cells; in the columns above all that follows from them is written out
            "settings": [cell.model_dump(mode="json", exclude_defaults=True) for cell in experiment.cells],
            "upper_bounds": upper_bounds,
            "versions": {name: _version(name) for name in ("numpy", "numba", "scipy")}
            | {"cbm": __version__, "kernel": KERNEL_VERSION},
            "grid_folder": str(folder.resolve()),
            "grid_commit": commit,  # of the repository that the grid is in
            "machine": {"system": platform.platform(), "python": platform.python_version()} | computer(),
        }
        write_if_changed(self.folder / "manifest.json", sealed(manifest, indent=1))

    def write_summary(self) -> None:
        """Write summary.csv from the records of the finished trials of the grid that was last run."""
        path, (keys, newest) = self.folder / "summary.csv", self._finished_trials()
        if self._current(keys, newest):
            return
        with replacing(path) as stream:
            text = io.TextIOWrapper(stream, "utf-8", newline="")
            self._write_rows(keys, text)
            text.detach()
            stream.seek(0)
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if newest:  # its time is that of the newest record in it
            os.utime(path, ns=(newest, newest))
        write_if_changed(self.folder / "summary.sha256", _summary_seal(digest, keys))

    def _current(self, keys: Keys, newest: int) -> bytes | None:
        """The text of summary.csv if it is whole, of these trials, and not older than the newest record."""
        path = self.folder / "summary.csv"
        with suppress(OSError):
            content, seal = path.read_bytes(), (self.folder / "summary.sha256").read_bytes()
            if path.stat().st_mtime_ns >= newest and seal == _summary_seal(sha256(content), keys):
                return content
        return None

    # Reading

    def progress(self, run_id: str, number: int, start: str = "") -> Progress | None:
        """Read the progress of an unfinished trial; see `read_progress`."""
        return read_progress(self.state_path(run_id, number), start)

    def pretrained(self, pretraining: str, number: int) -> Machine | None:
        """Return the layers that a trial with the same pre-training has written, or None."""
        try:
            return read_npz(self._pretrained_path(pretraining, number))
        except CbmError:
            return None

    def _pretrained_path(self, pretraining: str, number: int) -> Path:
        return self.folder / "pretrained" / pretraining / f"trial-{number:03d}.npz"

    def state_path(self, run_id: str, number: int) -> Path:
        """Return the path of the state of an unfinished trial."""
        return self.folder / _name(run_id, number, ".state.npz")

    def ends(self, course: str, updates: int) -> dict[int, Path]:
        """Return the longest ends of a course, in any experiment, with at most so many updates, by trial."""
        longest: dict[int, tuple[int, Path]] = {}
        for folder in sorted(self.folder.parent.glob("*/ends/")):
            files = Filing(folder.parent)
            for name in files.names(f"ends/{course}"):
                if not (match := re.fullmatch(r"trial-(\d+)-(\d+)\.npz", name)):
                    continue
                number, reached = int(match[1]), int(match[2])
                if reached <= updates and reached >= longest.get(number, (0,))[0]:
                    longest[number] = reached, files.path(f"ends/{course}/{name}")
        return {number: path for number, (_, path) in longest.items()}

    def runs(self) -> set[str]:
        """Return the run-ids with any file."""
        return self.files.folders("trials")

    def finished(self, run_id: str) -> frozenset[int]:
        """Return the numbers of the finished trials of a run."""
        return self.files.trials(f"trials/{run_id}")

    def finished_since(self, run_id: str, since: int) -> frozenset[int]:
        """Return the numbers of the trials of a run that were finished since a time in nanoseconds.

        Trials in archives, where the next run packs them, do not count.
        """
        return self.files.trials_since(f"trials/{run_id}", since)

    def unfinished(self, run_id: str) -> tuple[frozenset[int], frozenset[int]]:
        """Return the numbers of the interrupted and of the failed trials of a run."""
        done, folder = self.finished(run_id), self.folder / "trials" / run_id
        names = os.listdir(folder) if folder.is_dir() else []
        return numbers_of(names, ".state.npz") - done, numbers_of(names, ".error.txt") - done

    def files_of(self, run_id: str, number: int) -> list[Path]:
        """Return the paths of all files of a trial."""
        names = self.files.names(f"trials/{run_id}")
        own = sorted(name for name in names if name.startswith(f"trial-{number:03d}."))
        return [self.files.path(f"trials/{run_id}/{name}") for name in own]

    def changed(self, run_id: str) -> int:
        """Return when a trial of a run was last written, in nanoseconds."""
        return self.files.changed(f"trials/{run_id}")

    def seconds(self, run_id: str) -> list[float]:
        """Return the times of the finished trials of a run, in all experiments of the results folder."""
        stores = [Store(folder) for folder in self.folder.parent.glob("*/")]
        rows = (store.row(run_id, number) for store in stores for number in store.finished(run_id))
        return [row["seconds"] for row in rows if row]

    def damaged(self, run_id: str) -> dict[int, str]:
        """Return what is wrong with the files of finished trials of a run, by their numbers."""
        if self.files.is_packed(f"trials/{run_id}"):
            return {}
        found = ((number, self._problem(run_id, number)) for number in sorted(self.finished(run_id)))
        return {number: problem for number, problem in found if problem}

    def _problem(self, run_id: str, number: int) -> str | None:
        try:
            for suffix in self._record(run_id, number)["sha256"]:
                self._read(run_id, number, suffix)
        except CbmError as error:
            return str(error)
        return None

    def contents(self, run_id: str, number: int) -> dict[str, bytes]:
        """Return curve, machines and records of a finished trial, by the suffixes of their files."""
        return {
            suffix: self._read(run_id, number, suffix) for suffix in self._record(run_id, number)["sha256"]
        }

    def computer(self, run_id: str, number: int) -> dict[str, str]:
        """Return what is known of the computer that ran a finished trial; nothing of older trials."""
        return self._record(run_id, number).get("computer", {})

    def started_from(self, run_id: str, number: int) -> str:
        """Return the SHA-256 of the machine file that a finished trial started from, or an empty text."""
        return self._record(run_id, number).get("start_sha256", "")

    def _record(self, run_id: str, number: int) -> dict[str, Any]:
        """The record of a finished trial; CbmError if it is damaged."""
        name = _name(run_id, number, ".json")
        try:
            record = unsealed(self.files.read(name))
            if not all(isinstance(record[part], dict) for part in ("row", "sha256")):
                raise TypeError
            return record
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CbmError(
                f"{self.files.path(name)}: damaged or missing ({type(error).__name__})", "unreadable"
            ) from None

    def _read(self, run_id: str, number: int, suffix: str) -> bytes:
        """A file of a finished trial; CbmError if it has changed since it was written."""
        name = _name(run_id, number, suffix)
        expected = self._record(run_id, number)["sha256"].get(suffix)
        try:
            content = self.files.read(name)
            if sha256(content) != expected:
                raise ValueError
        except FileNotFoundError:
            raise CbmError(f"{self.files.path(name)}: missing", "missing") from None
        except (*_UNREADABLE, NotImplementedError, RuntimeError):
            raise CbmError(
                f"{self.files.path(name)}: was cut short or changed after it was written", "changed"
            ) from None
        return content

    def manifest(self) -> dict[str, Any]:
        """Return the grid that was last run: description, trials, table, cells, upper_bounds, versions."""
        path = self.folder / "manifest.json"
        if not path.exists():
            raise CbmError(f"{path}: missing; was {self.folder} written by cbm run?", "missing")
        try:
            content = path.read_bytes()
            if json.loads(content)["format"] == 1:
                raise CbmError(f"{path}: written by cbm 0.1.0; run again, into another folder", "unreadable")
            manifest = unsealed(content)
            if manifest["format"] > FORMAT:
                newer = manifest["versions"]["cbm"]
                raise CbmError(f"{path}: written by a newer cbm ({newer}); update this one", "unreadable")
            names = [cell["run_id"] for cell in manifest["cells"]]
            if not all(name == Path(name).name and name.strip(".") for name in names):
                raise ValueError  # a name that leads out of the folder
        except (ValueError, KeyError, TypeError):
            raise CbmError(
                f"{path}: damaged; cbm run writes it again and keeps finished trials", "unreadable"
            ) from None
        return manifest

    def summary(self) -> "pd.DataFrame":
        """Return one row per finished trial of the grid that was last run, in the grid's order.

        They come from the records, where summary.csv is missing, damaged or older; only writers write it.
        """
        keys, newest = self._finished_trials()
        current = self._current(keys, newest) if keys else None
        if current is not None:
            with suppress(ValueError):  # no table, though its checksum is right
                return read_csv(io.BytesIO(current))
        text = io.StringIO()
        self._write_rows(keys, text)
        return read_csv(io.BytesIO(text.getvalue().encode()))

    def _finished_trials(self) -> tuple[Keys, int]:
        """Finished trials of the grid's cells in their order, and when the newest record was written (ns)."""
        runs = [cell["run_id"] for cell in self.manifest()["cells"]]
        keys = [(run_id, number) for run_id in runs for number in sorted(self.finished(run_id))]
        return keys, max(map(self.changed, runs), default=0)

    def _write_rows(self, keys: Keys, stream: io.TextIOBase) -> None:
        """Write the rows of trials as CSV; those with damaged records are left out, with a warning."""
        names: dict[str, None] = {}
        texts = text_columns()
        for row in self._rows(keys):  # twice, as they may not fit into memory
            names |= dict.fromkeys(row)
        writer = csv.DictWriter(stream, names, lineterminator="\n")
        writer.writeheader()
        for row in self._rows(keys):
            missing = {name: "" for name, value in row.items() if value == "nan" and name not in texts}
            writer.writerow(row | missing)

    def _rows(self, keys: Keys) -> Iterator[dict[str, Any]]:
        return (row for key in keys if (row := self.row(*key)))

    def row(self, run_id: str, number: int) -> dict[str, Any] | None:
        """Return the row of one finished trial, or None with a warning if its record is damaged."""
        try:
            return self._record(run_id, number)["row"]
        except CbmError as error:
            warnings.warn(f"{error}; cbm run repeats this trial", stacklevel=2)
            return None

    def curve(self, run_id: str, number: int) -> "pd.DataFrame":
        """Return the curve of one trial: update, epoch, <part>_<metric>; likelihoods in nats per sample."""
        return self._table(run_id, number, ".csv")

    def curves(self, run_id: str, numbers: Iterable[int]) -> "list[pd.DataFrame]":
        """Return the curves of several trials of a run, read as one file: pandas starts slowly."""
        import pandas as pd

        contents = {number: self._read(run_id, number, ".csv") for number in numbers}
        heads, _, bodies = zip(*(content.partition(b"\n") for content in contents.values()), strict=True)
        ends = [0, *itertools.accumulate(body.count(b"\n") for body in bodies)]
        if len(set(heads)) == 1 and all(body[-1:] in (b"", b"\n") for body in bodies):
            with suppress(ValueError):
                whole = pd.read_csv(io.BytesIO(heads[0] + b"\n" + b"".join(bodies)))
                if len(whole) == ends[-1]:
                    return [whole.iloc[first:last] for first, last in itertools.pairwise(ends)]
        return [self.curve(run_id, number) for number in contents]

    def records(self, run_id: str, number: int) -> "pd.DataFrame":
        """Return what was recorded of one trial: update, then the columns of its recorders, if any."""
        import pandas as pd

        if ".records.csv" not in self._record(run_id, number)["sha256"]:
            return pd.DataFrame({"update": []})
        return self._table(run_id, number, ".records.csv")

    def _table(self, run_id: str, number: int, suffix: str) -> "pd.DataFrame":
        import pandas as pd

        content = self._read(run_id, number, suffix)
        try:
            return pd.read_csv(io.BytesIO(content))
        except ValueError as error:
            raise CbmError(
                f"{self.path(run_id, number, suffix)}: is no table of numbers ({error})", "unreadable"
            ) from None


def _name(run_id: str, number: int, suffix: str) -> str:
    return f"trials/{run_id}/trial-{number:03d}{suffix}"


@lru_cache
def _settings_row(settings: "Settings") -> dict[str, Any]:
    return settings.row()


def _summary_seal(digest: str, keys: Keys) -> bytes:
    """The content of summary.sha256: the SHA-256 of summary.csv, and of the names of its trials."""
    return f"{digest}  summary.csv\n{sha256(json.dumps(keys).encode())}  its trials\n".encode()


def _plain(value: float) -> float | str:
    return value if np.isfinite(value) else str(value)  # JSON has no -inf


@cache
def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)

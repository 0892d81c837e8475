"""One experiment's folder of results: writing trials, knowing which are finished, the summary."""

import csv
import hashlib
import io
import json
import os
import platform
import zipfile
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import cbm_cli
from cbm_cli.errors import CbmError
from cbm_cli.kernels import KERNEL_VERSION
from cbm_cli.kernels.machine import State
from cbm_cli.results.outcome import Machine, Outcome, Progress
from cbm_cli.results.writing import write_atomically, write_if_changed

if TYPE_CHECKING:
    import pandas as pd

    from cbm_cli.grid.settings import Experiment, Trial

FORMAT = 1  # of the files below; newer ones are refused
# Columns that are text even where they look like numbers: the scheme 00, the version 2.4.
TEXT_COLUMNS = (
    *("experiment", "run_id", "data", "offsets", "sampler", "batch", "pretraining_offsets", "record_units"),
    *("cbm_version", "kernel_version", "numpy_version", "numba_version"),
)
_UNREADABLE = (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile, zlib.error)
# The files of a finished trial; the CSV comes last, because it marks a trial finished.
_OF_A_TRIAL = (".npz", ".best.npz", ".records.csv", ".json", ".csv")


@dataclass(frozen=True)
class Store:
    """The folder ``results/<experiment>/``: the only place that knows the names and formats of its files."""

    folder: Path

    @property
    def experiment(self) -> str:
        """Name of the experiment."""
        return self.folder.name

    def path(self, run_id: str, number: int, suffix: str) -> Path:
        """Return the path of a trial's file: ``.csv`` (curve), ``.npz`` (machine) or ``.json`` (record)."""
        return self.folder / "trials" / run_id / f"trial-{number:03d}{suffix}"

    # Writing

    def write(self, run_id: str, trial: "Trial", outcome: Outcome, course: str = "", start: str = "") -> None:
        """Write a finished trial.

        ``course`` is the run-id without the length of training, under which longer trainings find the end of
        this one; ``start`` the SHA-256 of the machine file that the trial started from.
        """
        number, curve = trial.number, _csv(outcome.columns, outcome.curve)
        record = {"format": FORMAT, "csv_sha256": hashlib.sha256(curve).hexdigest()}
        record |= {"start_sha256": start} if start else {}
        record["computer"] = outcome.computer
        record["row"] = self._row(run_id, trial, outcome)
        if course and outcome.end:
            end = _arrays_of(replace(outcome.end, seconds=0.0)) | {"start": np.array(start)}
            path = self.folder / "ends" / course / f"trial-{number:03d}-{outcome.end.update}.npz"
            write_atomically(path, _packed(end, small=True))
        contents = {
            ".npz": _packed(outcome.machine),
            ".best.npz": outcome.best_machine and _packed(outcome.best_machine),
            ".records.csv": outcome.records is not None and _csv(outcome.recorded, outcome.records),
            ".json": json.dumps(record, indent=1).encode(),
            ".csv": curve,
        }
        for suffix in filter(contents.get, _OF_A_TRIAL):
            write_atomically(self.path(run_id, number, suffix), contents[suffix])
        for suffix in (".state.npz", ".error.txt"):
            self.path(run_id, number, suffix).unlink(missing_ok=True)

    def _row(self, run_id: str, trial: "Trial", outcome: Outcome) -> dict[str, Any]:
        return {
            "experiment": self.experiment,
            "run_id": run_id,
            "trial": trial.number,
            "seed": trial.seed,
            **trial.settings.row(),
            "n_train": outcome.rows["train"],
            **{f"n_{part}": outcome.rows[part] for part in ("valid", "test") if part in outcome.rows},
            **{name: _plain(value) for name, value in outcome.summary().items()},
            "diverged": outcome.diverged,
            "epochs_to_convergence": outcome.converged,
            "seconds": round(outcome.seconds, 3),
            "cbm_version": cbm_cli.__version__,
            "kernel_version": KERNEL_VERSION,
            "numpy_version": _version("numpy"),
            "numba_version": _version("numba"),
        }

    def add_columns(self, run_id: str, number: int, columns: dict[str, float]) -> None:
        """Add columns to the row of a finished trial, or replace columns of the same name."""
        path = self.path(run_id, number, ".json")
        record = json.loads(path.read_bytes())
        record["row"] |= {name: _plain(value) for name, value in columns.items()}
        write_atomically(path, json.dumps(record, indent=1).encode())

    def adopt(self, other: "Store", run_id: str, number: int) -> None:
        """Copy a trial that another experiment has already finished with exactly the same settings."""
        record = json.loads(other.path(run_id, number, ".json").read_bytes())
        record["row"]["experiment"] = self.experiment
        for suffix in _OF_A_TRIAL:
            path = other.path(run_id, number, suffix)
            if path.exists():
                content = json.dumps(record, indent=1).encode() if suffix == ".json" else path.read_bytes()
                write_atomically(self.path(run_id, number, suffix), content)

    def write_failure(self, run_id: str, number: int, details: str) -> None:
        """Write what went wrong in a trial, into the folder of its results."""
        write_atomically(self.path(run_id, number, ".error.txt"), details.encode())

    def write_progress(self, run_id: str, number: int, progress: Progress, start: str = "") -> None:
        """Write the progress of an unfinished trial; ``start`` as for `write`."""
        arrays = _arrays_of(progress) | {"start": np.array(start)}
        write_atomically(self.path(run_id, number, ".state.npz"), _packed(arrays))

    def write_pretrained(self, pretraining: str, number: int, machine: Machine) -> None:
        """Write the layers that a trial has pre-trained, for all trials that share them."""
        path = self._pretrained_path(pretraining, number)
        if machine and not path.exists():
            write_atomically(path, _packed(machine))

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
            | {"cbm": cbm_cli.__version__, "kernel": KERNEL_VERSION},
            "grid_folder": str(folder.resolve()),
            "git_commit": commit,
            "machine": {"system": platform.platform(), "python": platform.python_version()} | computer(),
        }
        write_if_changed(self.folder / "manifest.json", json.dumps(manifest, indent=1).encode())

    def write_summary(self) -> None:
        """Write summary.csv from the records of the finished trials of the grid that was last run."""
        path, (keys, newest) = self.folder / "summary.csv", self._finished_trials()
        write_if_changed(path, self._summary_text(keys).encode())
        if newest:  # its time is that of the newest record in it
            os.utime(path, ns=(newest, newest))

    # Reading

    def progress(self, run_id: str, number: int, start: str = "") -> Progress | None:
        """Read the progress of an unfinished trial; see `read_progress`."""
        return read_progress(self.path(run_id, number, ".state.npz"), start)

    def pretrained(self, pretraining: str, number: int) -> Machine | None:
        """Return the layers that a trial with the same pre-training has written, or None."""
        try:
            with np.load(self._pretrained_path(pretraining, number), allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
        except _UNREADABLE:
            return None

    def _pretrained_path(self, pretraining: str, number: int) -> Path:
        return self.folder / "pretrained" / pretraining / f"trial-{number:03d}.npz"

    def end(self, course: str, number: int, updates: int) -> Path | None:
        """Return the longest end of a course, in any experiment, with at most so many updates, or None."""
        paths = self.folder.parent.glob(f"*/ends/{course}/trial-{number:03d}-*.npz")
        ends = {int(path.stem.rpartition("-")[2]): path for path in sorted(paths)}
        return ends.get(max((end for end in ends if end <= updates), default=None))

    def finished(self, run_id: str) -> set[int]:
        """Return the numbers of the finished trials of a run."""
        return self._numbers(run_id, ".csv")

    def unfinished(self, run_id: str) -> tuple[set[int], set[int]]:
        """Return the numbers of the interrupted and of the failed trials of a run."""
        done = self.finished(run_id)
        return self._numbers(run_id, ".state.npz") - done, self._numbers(run_id, ".error.txt") - done

    def _numbers(self, run_id: str, suffix: str) -> set[int]:
        try:
            names = os.listdir(self.folder / "trials" / run_id)
        except OSError:
            return set()
        ends = (name.removeprefix("trial-").removesuffix(suffix) for name in names if name.endswith(suffix))
        return {int(number) for number in ends if number.isdigit()}  # trial-007.records.csv is not a curve

    def seconds(self, run_id: str) -> list[float]:
        """Return the times of the finished trials of a run, in all experiments of the results folder."""
        stores = [Store(folder) for folder in self.folder.parent.glob("*/") if (folder / "trials").is_dir()]
        rows = (store.row(run_id, number) for store in stores for number in store.finished(run_id))
        return [row["seconds"] for row in rows if row]

    def damaged(self, run_id: str) -> dict[int, str]:
        """Return what is wrong with the files of finished trials of a run, by their numbers."""
        found = ((number, self._problem(run_id, number)) for number in sorted(self.finished(run_id)))
        return {number: problem for number, problem in found if problem}

    def _problem(self, run_id: str, number: int) -> str | None:
        curve = self.path(run_id, number, ".csv")
        try:
            record = json.loads(self.path(run_id, number, ".json").read_bytes())
            if hashlib.sha256(curve.read_bytes()).hexdigest() != record["csv_sha256"]:
                return f"{curve}: was cut short or changed after it was written"
            if not self.path(run_id, number, ".npz").stat().st_size:
                return f"{self.path(run_id, number, '.npz')}: is empty"
        except (OSError, ValueError, KeyError, TypeError) as error:
            return f"{self.path(run_id, number, '.json')}: cannot be read ({type(error).__name__})"
        return None

    def contents(self, run_id: str, number: int) -> dict[str, bytes]:
        """Return curve, machines and records of a finished trial, by the suffixes of their files."""
        paths = {suffix: self.path(run_id, number, suffix) for suffix in _OF_A_TRIAL if suffix != ".json"}
        return {suffix: path.read_bytes() for suffix, path in paths.items() if path.exists()}

    def computer(self, run_id: str, number: int) -> dict[str, str]:
        """Return what is known of the computer that ran a finished trial; nothing of older trials."""
        return json.loads(self.path(run_id, number, ".json").read_bytes()).get("computer", {})

    def started_from(self, run_id: str, number: int) -> str:
        """Return the SHA-256 of the machine file that a finished trial started from, or an empty text."""
        return json.loads(self.path(run_id, number, ".json").read_bytes()).get("start_sha256", "")

    def manifest(self) -> dict[str, Any]:
        """Return the grid that was last run: description, trials, table, cells, upper_bounds, versions."""
        path = self.folder / "manifest.json"
        try:
            manifest = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise CbmError(f"{path}: missing; was {self.folder} written by cbm run?") from None
        except ValueError:
            raise CbmError(f"{path}: damaged; cbm run writes it again and keeps finished trials") from None
        if manifest.get("format", 0) > FORMAT:
            raise CbmError(f"{path}: written by a newer cbm ({manifest['versions']['cbm']}); update this one")
        return manifest

    def summary(self) -> "pd.DataFrame":
        """Return one row per finished trial of the grid that was last run, in the grid's order.

        A summary.csv that is missing, or older than a record, is first written anew.
        """
        import pandas as pd

        path, (keys, newest) = self.folder / "summary.csv", self._finished_trials()
        if not keys:
            return pd.DataFrame()
        with suppress(OSError, ValueError, KeyError):
            if path.stat().st_mtime_ns >= newest:
                written = _typed(path)
                if [*zip(written["run_id"], written["trial"], strict=True)] == keys:
                    return written
        try:
            self.write_summary()
        except (CbmError, OSError):  # a folder that only others may write
            return _typed(io.StringIO(self._summary_text(keys)))
        return _typed(path)

    def _finished_trials(self) -> tuple[list[tuple[str, int]], int]:
        """Finished trials of the grid's cells in their order, and when the newest record was written (ns)."""
        keys, newest = [], 0
        for cell in self.manifest()["cells"]:
            folder = self.folder / "trials" / cell["run_id"]
            numbers = sorted(self.finished(cell["run_id"]))
            keys += [(cell["run_id"], number) for number in numbers]
            if numbers:
                records = (entry for entry in os.scandir(folder) if entry.name.endswith(".json"))
                newest = max([newest, *(entry.stat().st_mtime_ns for entry in records)])
        return keys, newest

    def _summary_text(self, keys: Sequence[tuple[str, int]]) -> str:
        rows = [row for key in keys if (row := self.row(*key))]
        stream = io.StringIO()
        names = dict.fromkeys(name for row in rows for name in row)
        writer = csv.DictWriter(stream, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: "" if v == "nan" else v for name, v in row.items()} for row in rows)
        return stream.getvalue()

    def row(self, run_id: str, number: int) -> dict[str, Any] | None:
        """Return the row of one finished trial, or None if its record cannot be read."""
        try:
            return json.loads(self.path(run_id, number, ".json").read_bytes())["row"]
        except (OSError, ValueError, KeyError):
            return None

    def curve(self, run_id: str, number: int) -> "pd.DataFrame":
        """Return the curve of one trial: update, epoch, <part>_<metric>; likelihoods in nats per sample."""
        import pandas as pd

        return pd.read_csv(self.path(run_id, number, ".csv"))

    def records(self, run_id: str, number: int) -> "pd.DataFrame":
        """Return what was recorded of one trial: update, then the columns of its recorders, if any."""
        import pandas as pd

        path = self.path(run_id, number, ".records.csv")
        return pd.read_csv(path) if path.exists() else pd.DataFrame({"update": []})


def read_progress(path: Path, start: str = "") -> Progress | None:
    """Read the progress of a trial that started from ``start``; None without a file or for another start."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        if str(arrays.get("start", "")) != start:
            return None
        return Progress(
            State(**_group(arrays, "state")),
            int(arrays["update"]),
            arrays["curve"].tolist(),
            _group(arrays, "best") or None,
            float(arrays["seconds"]),
            tuple(arrays["recorded"].tolist()),
            [arrays["records"]] if arrays["records"].size else [],
            _group(arrays, "pending"),
            int(arrays["stage"]),
            _group(arrays, "pretrained"),
            json.loads(str(arrays.get("computer", "{}"))),
        )
    except FileNotFoundError:
        return None
    except _UNREADABLE:
        raise CbmError(f"{path}: was cut short; this trial starts afresh") from None


def _arrays_of(progress: Progress) -> Machine:
    groups = {
        "state": progress.state._asdict(),
        "best": progress.best_machine or {},
        "pending": progress.pending,
        "pretrained": progress.pretrained,
    }
    arrays = {f"{group}_{name}": a for group, held in groups.items() for name, a in held.items()}
    return arrays | {
        "update": np.array(progress.update),
        "curve": np.array(progress.curve, dtype=np.float64),
        "seconds": np.array(progress.seconds),
        "recorded": np.array(progress.recorded, dtype=np.str_),
        "records": np.concatenate(progress.records) if progress.records else np.empty(0),
        "stage": np.array(progress.stage),
        "computer": np.array(json.dumps(progress.computer)),
    }


def _group(arrays: Machine, prefix: str) -> Machine:
    """The arrays whose name starts with a prefix, without the prefix."""
    start = f"{prefix}_"
    return {name.removeprefix(start): a for name, a in arrays.items() if name.startswith(start)}


def _packed(arrays: Machine, small: bool = False) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if small else np.savez)(stream, **arrays)
    return stream.getvalue()


def _csv(columns: Sequence[str], rows: NDArray[np.float64]) -> bytes:
    forms = {"update": "{:.0f}".format, "epoch": "{:.10g}".format}
    own = [forms.get(name, repr) for name in columns]
    lines = (",".join(form(value) for form, value in zip(own, row, strict=True)) for row in rows.tolist())
    return "".join(f"{line}\n" for line in (",".join(columns), *lines)).encode()


def _plain(value: float) -> float | str:
    return value if np.isfinite(value) else str(value)  # JSON has no -inf


def _typed(file: Path | io.StringIO) -> "pd.DataFrame":
    import pandas as pd

    return pd.read_csv(file, dtype=dict.fromkeys(TEXT_COLUMNS, str))


@cache
def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)

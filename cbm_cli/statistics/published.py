"""The paper's tables in our spelling, and the settings of the runs that they tell of."""

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from cbm_cli.paper import PUBLISHED_RESULTS

Key = tuple[str, ...]
Published = dict[str, str]  # one line of published-results.csv, in our spelling
Settings = Mapping[str, str]  # of a run, as text, under the names of summary.csv

# Columns of summary.csv and of the published table that say which run a published value is of.
IDENTITY = {
    "data": "dataset",
    "model_kind": "model",
    "model_hidden": "hidden",
    "sampler": "sampler",
    "learning_rate": "learning_rate",
    "offsets": "offsets",
    "init": "init",
    "pretraining_epochs": "pretraining_epochs",
}
ROW = ["table", "split", "dataset", "hidden", "sampler", "learning_rate", "pretraining_epochs"]
METRICS = {"rbm": "log_likelihood", "dbm": "lower_bound", "auto-encoder": "cost"}  # behind the part's name
UNDERLINED = "10"  # trials; too few for the paper's test: only the best of a row is marked

PAPER_TABLES = {
    "standard-methods-bars-mnist": "2",
    "standard-methods-shifting-bar": "3",
    "init-00-flipped-shifting-bar": "4",
    "init-00-mnist": "5",
    "init-dd-flipped-shifting-bar": "6",
    "reparameterization-order": "7",
    "moving-average": "8",
    "big-rbm-test": "9",
    "big-rbm-train": "10",
    "dbm-test": "11",
    "dbm-train": "12",
    "auto-encoder": "13",
}
SMOOTHED = "d0^b_s"  # what the paper prints as d0 where it trains with mini-batches
MISPRINT = {"table": "standard-methods-bars-mnist", "dataset": "mnist", "sampler": "PT_10", "offsets": "aa^b"}

# What the paper's runs have in common, spelled as in summary.csv; | parts values that mean the same. Results
# of the first version lack some columns: nothing there means what was the only choice then.
EVERYWHERE = {
    "ladders": "1",
    "weight_scale": "0.01",
    "momentum": "|0",
    "weight_decay_l1": "|0",
    "weight_decay_l2": "|0",
    "chains": "",
    "swaps": "|alternate",
    "shuffle": "|True",
    "sliding_factor_visible": "0.01",
    "sliding_factor_hidden": "0.01",
    "gradient_kind": "|centered|standard|enhanced",
    "gradient_scale_to": "|none",
    "gradient_from": "|samples",
    "offsets_from": "|same",
    "start_from_path": "",
    "start_from_experiment": "",
    "evaluate_rows": "",
}
ALL_ROWS = {"data_hold_out": ""}  # auto encoders need a validation part, which not all data sets have
TOY = {"updates": "50000", "batch": "full", "evaluate_every": "50 updates"}
BARS = TOY | {"data_size": "3"}
SHIFTING = TOY | {"data_size": "9", "data_bar": "1"}
BINARY_MNIST = {"data_binarise": "threshold", "data_threshold": "0.5"}
RBM_SETTINGS = {
    "bars-and-stripes": BARS,
    "shifting-bar": SHIFTING,
    "flipped-shifting-bar": SHIFTING,
    "mnist": {"epochs": "100", "batch": "100", "evaluate_every": "1 epoch"} | BINARY_MNIST,
}
LONG_RUNS = {"0.01": "5000", "0.001": "30000"}  # epochs on the eight data sets, by learning rate
DBM_SETTINGS = {
    "epochs": "5000",
    "batch": "100",
    "evaluate_every": "50 epochs",
    "data_phase": "mean-field",
    "pretraining_learning_rate": "|0.01",
    "pretraining_offsets": "",
    "pretraining_sampler": "|PCD-1",
    "pretraining_batch": "|100",
    "pretraining_sliding_factor": "|0.01",
    "pretraining_doubling": "|True",
}
AUTO_ENCODER_EPOCHS = "5000"
AUTO_ENCODER_SETTINGS = {
    "epochs": AUTO_ENCODER_EPOCHS,
    "batch": "100",
    "evaluate_every": "1 epoch",
    "model_encoder": "sigmoid",
    "model_decoder": "sigmoid",
    "model_loss": "cross-entropy",
    "early_stopping_tolerance": "1e-05",
}


def published_cells() -> pd.DataFrame:
    """All published cells as text, in our spelling.

    Machines with ``init: original`` started at zero biases where their scheme is 00 or d0. With mini-batches
    d0 is spelled d0^b_s: the paper's visible offsets do not move with the batch
    (docs/decisions/0019-published-d0.md), and such machines start at the inverse sigmoid. The column
    ``overfitting`` is ``yes`` for training costs of auto encoders that were trained to the last epoch though
    the test cost had stopped to fall before: early stopping did not end these trainings.
    """
    with PUBLISHED_RESULTS.open() as file:
        table = pd.read_csv(file, dtype=str, keep_default_na=False)
    original = table["init"].isin(["", "original"])
    table.loc[original, "init"] = np.where(
        table.loc[original, "offsets"].isin(["00", "d0"]), "zero", "inverse-sigmoid"
    )
    full_batch = [name for name, own in RBM_SETTINGS.items() if own["batch"] == "full"]
    smoothed = (table["offsets"] == "d0") & ~table["dataset"].isin(full_batch)
    table.loc[smoothed, ["offsets", "init"]] = [SMOOTHED, "inverse-sigmoid"]
    table["hidden"] = table["hidden"].str.replace("x", "-")
    table["dataset"] = table["dataset"].replace("caltech", "caltech101-silhouettes")
    table["sampler"] = table["sampler"].replace("", "back-propagation")
    table["log_likelihood_scale"] = table["log_likelihood_scale"].replace("", "per-sample")
    return table.assign(overfitting=_overfitting(table))


def _overfitting(table: pd.DataFrame) -> pd.Series:
    method = [name for name in IDENTITY.values() if name != "model"]
    of_test = table[table["split"] == "test"].set_index(["table", *method])["epochs_to_convergence"]
    twins = of_test.reindex(pd.MultiIndex.from_frame(table[["table", *method]])).to_numpy()
    goes_on = (table["epochs_to_convergence"] == AUTO_ENCODER_EPOCHS) & (twins != AUTO_ENCODER_EPOCHS)
    return goes_on.map({True: "yes", False: ""})


def paper_settings(published: Published) -> dict[str, str]:
    """Settings of the paper's run of a cell beyond those that its table lists."""
    if published["model"] == "dbm":
        return EVERYWHERE | ALL_ROWS | DBM_SETTINGS
    if published["model"] == "auto-encoder":
        look_ahead = AUTO_ENCODER_EPOCHS if published["overfitting"] else "5"
        own = AUTO_ENCODER_SETTINGS | {"early_stopping_look_ahead": look_ahead}
        return EVERYWHERE | own | (BINARY_MNIST if published["dataset"] == "mnist" else {})
    epochs = LONG_RUNS.get(published["learning_rate"], "5000")
    eight = {"epochs": epochs, "batch": "100", "evaluate_every": "50 epochs"}
    return EVERYWHERE | ALL_ROWS | RBM_SETTINGS.get(published["dataset"], eight)


def departures(published: Published, settings: Settings) -> list[str]:
    """Names of the settings of a run that are not those of the paper's run of a cell."""
    return [
        name
        for name, value in paper_settings(published).items()
        if settings.get(name, "") not in value.split("|")
    ]


def readings(sampler: str) -> list[str]:
    """Samplers that a published one is compared with: PCD-1 is also read as two sweeps an update."""
    return ["PCD-1", "PCD-2"] if sampler == "PCD-1" else [sampler]


def published_key(published: Published, sampler: str) -> Key:
    """What a run has to have in common with a published cell, with this reading of its sampler."""
    return tuple((published | {"sampler": sampler})[name] for name in IDENTITY.values())


def run_key(settings: Settings) -> Key:
    """The same of a run."""
    return tuple(settings.get(name) or "0" for name in IDENTITY)  # once there was no pre-training


def rows_of(published: pd.DataFrame) -> Iterator[list[Published]]:
    """The rows of the published tables, a list of cells each."""
    for _, row in published.groupby(ROW, sort=False):
        yield row.to_dict("records")

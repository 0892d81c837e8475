"""Print the numbers that decide the hypotheses of hypotheses.yaml, as tables of text.

    python reproduction/hypotheses.py RESULTS [EXPERIMENT]...

± is a standard error over trials, z a difference from the published value in standard errors of both sides.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from lengths import length, length_moved

import cbm_cli as cbm
from cbm_cli.machines.gradients import centered, free_energy, hidden_mean, log_partition, standard_gradient
from cbm_cli.paper.comparison import rounding_variance
from cbm_cli.paper.published import published_cells

BOUNDS = {"bars-and-stripes": -8 * np.log(8) + 4 * np.log(2), "shifting-bar": -4 * np.log(4)}  # 2x2; N = 4
PUBLISHED = published_cells().query("sampler == reading")


def published(**where):
    """Return the published cell with these values; of several tables, one with final values."""
    cells = PUBLISHED[(PUBLISHED[list(where)] == pd.Series(where).astype(str)).all(axis=1)]
    return cells.sort_values("final_mean", key=lambda finals: finals == "", kind="stable").iloc[0]


def error(values):
    """Return the standard error of a mean."""
    return np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan


def z(values, cell, column="mean"):
    """Return the difference from a published value in standard errors, as `cbm paper compare` does.

    A single trial has the published spread; published final values have the obtained one.
    """
    spread, n = float(cell["std"]), int(cell["trials"])
    own = np.std(values, ddof=1) if len(values) > 1 else spread
    theirs = own if column == "final_mean" else spread
    variance = own**2 / len(values) + theirs**2 / n + rounding_variance(cell[column])
    return (np.mean(values) - float(cell[column])) / np.sqrt(variance)


def beside(values, finals, cell):
    """Return a value and a final value beside the published ones."""
    return {
        "n": len(values),
        "value": np.mean(values),
        "±": error(values),
        "published": float(cell["mean"]),
        "z": z(values, cell),
        "final": np.mean(finals),
        "± ": error(finals),
        "published final": float(cell["final_mean"]),
        "z ": z(finals, cell, "final_mean"),
    }


def at_best_mean(curves, metric, better=1):
    """Return the trials' values where their mean is best, and their last ones."""
    trials = curves.pivot_table(index="update", columns="trial", values=metric).iloc[1:]
    best = (better * trials.mean(axis=1)).idxmax()
    return trials.loc[best].to_numpy(), trials.iloc[-1].to_numpy()


def curves_of(results, experiment, axes):
    """Return all curves with these settings, whether they vary or not."""
    curves, settings = results.curves(experiment), results.summaries(experiment)[["run_id", *axes]]
    return curves.drop(columns=axes, errors="ignore").merge(settings.drop_duplicates(), on="run_id")


def toy_cells(summary, by="swaps"):
    """Yield the settings of each cell of a toy table, and its rows."""
    axes = ["data", "offsets", by, "learning_rate"]
    for key, rows in summary.groupby(axes, sort=False):
        where = dict(zip(axes, key, strict=True))
        cell = published(
            dataset=where["data"],
            offsets=where["offsets"],
            learning_rate=where["learning_rate"],
            sampler="PT_10",
            init="inverse-sigmoid",
            hidden="4",
        )
        yield where, rows.set_index("trial")["n_train"], rows.set_index("trial"), cell


def swaps(results, experiment="swaps", by="swaps"):
    """PT_10 by the rounds of swaps."""
    for where, size, rows, cell in toy_cells(results.summaries(experiment), by):
        yield where | beside(
            rows["train_log_likelihood_max"] * size, rows["train_log_likelihood_final"] * size, cell
        )


def offset_means(results):
    """PT_10 by what the model means in visible offsets are taken over."""
    return swaps(results, "offset-means", "offset_means_visible")


def offset_means_mnist(results):
    """The same on MNIST."""
    return on_mnist(results, "offset-means-mnist", ["offsets", "offset_means_visible"])


def swaps_bars(results):
    """The same on Bars & Stripes."""
    return swaps(results, "swaps-bars")


def swaps_more(results):
    """All trials of aa^b together, and the mean difference of the six maxima with its dependence."""
    apart = {}
    for where, size, rows, cell in toy_cells(results.summaries("swaps-more")):
        best = rows["train_log_likelihood_max"] * size
        apart[where["data"], where["learning_rate"]] = best - float(cell["mean"])
        for part, name in ((best, "all"), (best[:25], "0-24"), (best[25:], "25-49")):
            yield where | {"trials": name, "mean": part.mean(), "±": error(part), "z": z(part, cell)}
    apart = pd.DataFrame(apart)
    for name, part in (("all", apart), ("0-24", apart[:25]), ("25-49", apart[25:])):
        difference, spread = part.mean(axis=1).mean(), apart.mean(axis=1).std()
        both = np.sqrt(1 / len(part) + 1 / 25)
        independent = np.sqrt((apart.var() / 36).sum()) * both
        yield {
            "data": "six cells",
            "trials": name,
            "mean": difference,
            "±": spread * both,
            "z": difference / (spread * both),
            "z if cells were independent": difference / independent,
        }
    yield {"data": "mean correlation of two cells", "mean": mean_correlation(apart)}


def mean_correlation(frame):
    """Return the mean correlation of two different columns."""
    table = frame.corr().to_numpy()
    return table[np.triu_indices(len(table), 1)].mean()


def initial_weights(results):
    """Log-likelihoods on the way, and paired differences from rr^b."""
    curves = results.curves("initial-weights")
    rows = {"bars-and-stripes": 16, "shifting-bar": 9}
    for data, update in (("bars-and-stripes", 3000), ("shifting-bar", 10000)):
        now = curves[(curves["data"] == data) & (curves["update"] == update)]
        values = now.pivot_table(
            index="trial", columns=["offsets", "weight_scale"], values="train_log_likelihood"
        )
        values *= rows[data]
        for offsets, scale in values:
            one = values[offsets, scale]
            start, same = one - values["rr^b", 0.01], one - values["rr^b", scale]
            yield {
                "data": data,
                "update": update,
                "offsets": offsets,
                "weight_scale": scale,
                "n": len(one),
                "value": one.mean(),
                "±": error(one),
                "less rr^b 0.01": start.mean(),
                "± ": error(start),
                "less rr^b, same scale": same.mean(),
                "±  ": error(same),
            }


RATIOS = {
    "all, plain": ("centered_gradient_norm", "standard_gradient_norm"),
    "weights": ("centered_weights", "standard_weights"),
    "own coordinates": ("centered_own", "standard_plain"),
    "own, standard moved": ("centered_own", "standard_moved"),
}


def gradient_lengths(results):
    """Centered over standard length, and how long training takes."""
    axes = ["data", "offsets", "gradient_kind", "gradient_scale_to", "gradient_scale_of"]
    records, curves = results.records("gradient-lengths"), results.curves("gradient-lengths")
    settings = results.summaries("gradient-lengths")[["run_id", *axes]].drop_duplicates()
    for _, cell in settings.iterrows():
        of_cell = records[records["run_id"] == cell["run_id"]]
        ratios = {
            name: (of_cell[one] / of_cell[other]).groupby(of_cell["trial"]).median().median()
            for name, (one, other) in RATIOS.items()
        }
        size = {"bars-and-stripes": 8, "shifting-bar": 4}[cell["data"]]
        trials = size * curves[curves["run_id"] == cell["run_id"]].pivot_table(
            index="update", columns="trial", values="train_log_likelihood"
        )
        there = trials >= BOUNDS[cell["data"]] - 0.5
        updates = there.idxmax()[there.any()]
        yield (
            cell[axes].to_dict()
            | ratios
            | {
                "n": trials.shape[1],
                "arrived": int(there.any().sum()),
                "median updates": np.median([*updates, *[np.inf] * int((~there.any()).sum())]),
                "final": trials.iloc[-1].mean(),
                "±": error(trials.iloc[-1]),
            }
        )


def own_coordinates(results, trials=25, updates=10000):
    """Training with the length of the standard gradient in the centered machine's own coordinates."""
    for data, options in (("bars-and-stripes", {"size": 2}), ("shifting-bar", {"size": 4, "bar": 1})):
        rows, bound = cbm.data(data, **options)["train"], BOUNDS[data] - 0.5
        for scaled in (False, True):
            mu = np.broadcast_to(rows.mean(axis=0), (trials, 4))
            W = np.random.default_rng(1).normal(0, 0.01, (trials, 4, 4))
            machine = W, np.log(mu / (1 - mu)), np.zeros((trials, 4))
            there = np.full(trials, np.inf)
            for update in range(1, updates + 1):
                standard = standard_gradient(*machine, rows)
                lam = hidden_mean(machine[0], machine[2], rows).mean(axis=1)
                step = centered(standard, mu, lam)
                factor = length_moved(standard, mu, lam) / length(standard._replace(W=step.W).flat())
                factor = np.where(scaled, factor, 1.0)
                machine = [old + 0.1 * (factor * move.T).T for old, move in zip(machine, step, strict=True)]
                if update % 10 == 0:
                    values = -free_energy(*machine, rows.astype(float)).sum(axis=1)
                    values -= len(rows) * log_partition(*machine)
                    there = np.where(np.isinf(there) & (values >= bound), update, there)
            yield {
                "data": data,
                "scaled": scaled,
                "n": trials,
                "arrived": int(np.isfinite(there).sum()),
                "median updates": np.median(there),
                "final": values.mean(),
                "±": error(values),
            }


def on_mnist(results, experiment, axes):
    """Maxima and final values on MNIST beside those of table 2; PCD-2 beside PCD-1, aa^l beside aa^b."""
    for key, rows in results.summaries(experiment).groupby(axes):
        one = rows.iloc[0]
        cell = published(
            dataset="mnist",
            offsets=one["offsets"].replace("aa^l", "aa^b"),
            learning_rate=one["learning_rate"],
            sampler=one["sampler"].replace("PCD-2", "PCD-1"),
            init="inverse-sigmoid",
        )
        yield dict(zip(axes, key, strict=True)) | beside(
            rows["train_log_likelihood_max"], rows["train_log_likelihood_final"], cell
        )


def chains(results):
    """aa^b on MNIST by the number of chains."""
    return on_mnist(results, "chains", ["offsets", "sampler", "chains"])


def swaps_mnist(results):
    """PT_10 on MNIST by the rounds of swaps."""
    return on_mnist(results, "swaps-mnist", ["offsets", "swaps"])


def stopped(costs, look_ahead=5, tolerance=1e-5):
    """Return the epoch of the lowest cost until training stops by docs/decisions/0018; all if it does not."""
    waiting = 0
    for epoch in range(1, len(costs)):
        waiting = 0 if costs[epoch - 1] - costs[epoch] > tolerance else waiting + 1
        if waiting == look_ahead:
            return int(np.argmin(costs[: epoch + 1]))
    return len(costs) - 1


def adult_stopping(results):
    """Epochs until training stops, and the validation cost there, by the part that stops it."""
    axes = ["learning_rate", "offsets"]
    for (rate, offsets), cell_curves in curves_of(results, "adult-stopping", axes).groupby(axes):
        trials = [one for _, one in cell_curves.groupby("trial")]
        cell = published(
            dataset="adult", model="auto-encoder", split="test", learning_rate=rate, offsets=offsets
        )
        for part in ("valid", "test", "train"):
            epochs = [stopped(one[f"{part}_cost"].to_numpy()) for one in trials]
            spread = np.std(epochs, ddof=1) if len(epochs) > 1 else np.nan
            apart = np.mean(epochs) - float(cell["epochs_to_convergence"])
            yield {
                "learning_rate": rate,
                "offsets": offsets,
                "stops": part,
                "n": len(trials),
                "epochs": np.mean(epochs),
                "±": error(epochs),
                "published epochs": cell["epochs_to_convergence"],
                "z": apart / (spread * np.sqrt(1 / len(epochs) + 1 / 10)) if spread else np.nan,
                **{
                    f"lowest {of} cost": np.mean(
                        [
                            one[f"{of}_cost"][: epoch + 1].min()
                            for one, epoch in zip(trials, epochs, strict=True)
                        ]
                    )
                    for of in ("valid", "test")
                },
                "published cost": cell["mean"],
            }


def look_ahead(results):
    """Epochs of the lowest validation cost until training stops, by the look-ahead; without trial 0."""
    axes = ["data", "offsets"]
    for (data, offsets), cell_curves in curves_of(results, "look-ahead", axes).groupby(axes):
        trials = [one["valid_cost"].to_numpy() for trial, one in cell_curves.groupby("trial") if trial]
        cell = published(
            dataset=data, model="auto-encoder", split="test", learning_rate="0.5", offsets=offsets
        )
        for epochs_needed in (5, 6):
            epochs = [stopped(costs, epochs_needed) for costs in trials]
            costs = [one[epoch] for one, epoch in zip(trials, epochs, strict=True)]
            spread = np.std(epochs, ddof=1) * np.sqrt(1 / len(epochs) + 1 / int(cell["trials"]))
            yield {
                "data": data,
                "offsets": offsets,
                "look-ahead": epochs_needed,
                "n": len(trials),
                "epochs": np.mean(epochs),
                "±": error(epochs),
                "published": float(cell["epochs_to_convergence"]),
                "z": (np.mean(epochs) - float(cell["epochs_to_convergence"])) / spread if spread else np.nan,
                "cost": np.mean(costs),
                "± ": error(costs),
                "published cost": float(cell["mean"]),
                "z ": z(costs, cell),
            }


def eight_sets(results, experiment, axis, hidden="16"):
    """Maxima of the mean and of its running mean, and final values, by one setting."""
    axes = ["data", "offsets", "sampler", axis]
    curves = curves_of(results, experiment, axes)
    for part in ("train", "test"):
        for (data, offsets, sampler, value), rows in curves.groupby(axes):
            cell = published(
                dataset=data,
                hidden=hidden,
                split=part,
                offsets=offsets,
                sampler="PCD-1",
                learning_rate="0.01",
            )
            metric = f"{part}_log_likelihood"
            means = rows.groupby("update")[metric].mean()
            yield (
                {"data": data, "part": part, "offsets": offsets, "sampler": sampler, axis: value}
                | beside(*at_best_mean(rows, metric), cell)
                | {"running mean of 11": means.rolling(11, center=True).mean().max()}
            )


def final_epochs(results, experiment="final-epochs"):
    """Published final values with 200 hidden units beside those after fewer epochs: z of each."""
    axes = ["data", "offsets", "sampler", "n_train"]
    curves = curves_of(results, experiment, axes)
    curves["epochs"] = curves["update"] // (curves["n_train"] // 100)
    schemes = list(dict.fromkeys(curves["offsets"]))
    groups = curves[curves["epochs"] > 0].groupby(["data", "sampler", "epochs"])
    for (data, sampler, epochs), rows in groups:
        errors, nats = {}, []
        for part in ("train", "test"):
            for offsets in schemes:
                where = {"dataset": data, "hidden": "200", "split": part, "offsets": offsets}
                cell = published(**where, learning_rate="0.01")
                values = rows.loc[rows["offsets"] == offsets, f"{part}_log_likelihood"]
                errors[f"{offsets} {part}"] = z(values, cell, "final_mean")
                nats.append(abs(values.mean() - float(cell["final_mean"])))
        where = {"data": data, "sampler": sampler, "epochs": epochs, "n": rows["trial"].nunique()}
        agree = sum(abs(one) <= 2 for one in errors.values())
        yield where | {"agree": agree, "nats off": np.mean(nats)} | errors


def final_sweeps(results):
    """The same by the number of sweeps per update."""
    return final_epochs(results, "final-sweeps")


def sweeps_maxima(results):
    """Maxima of the mean, and final values, of two sweeps per update after 2,000 epochs."""
    return eight_sets(results, "sweeps-maxima", "epochs", hidden="200")


def sweeps_200(results):
    """Maxima of the mean, and final values, of two sweeps per update with 200 hidden units."""
    return eight_sets(results, "sweeps-200", "epochs", hidden="200")


def fixed_mean(results):
    """d0 with a moving average of the data mean, or the mean of all rows."""
    return eight_sets(results, "fixed-mean", "sliding_factor_visible")


def batch_order(results):
    """Shuffled rows, or the order of the file."""
    return eight_sets(results, "batch-order", "shuffle")


def batch_order_mnist(results):
    """The same on MNIST; published values of dd^b_s."""
    return on_mnist(results, "batch-order-mnist", ["sampler", "learning_rate", "shuffle"])


def rows_mnist(results):
    """The first 50,000 rows of MNIST; published values of dd^b_s and 00."""
    return on_mnist(results, "rows-mnist", ["offsets", "sampler", "learning_rate"])


def all_of_mnist(parts, shown=()):
    """Values of MNIST with 16 hidden units beside those of some {name: summaries}, and how many agree."""
    axes = ["offsets", "init", "sampler", "learning_rate"]
    parts = {name: dict([*rows.groupby(axes)]) for name, rows in parts.items()}
    found = []
    for key in list(parts.values())[-1]:
        cell = published(dataset="mnist", hidden="16", **dict(zip(axes, key, strict=True)))
        one = dict(zip(axes, key, strict=True)) | {"published": float(cell["mean"])}
        for name, cells in parts.items():
            if key in cells:
                rows = cells[key]
                of = beside(rows["train_log_likelihood_max"], rows["train_log_likelihood_final"], cell)
                one |= {
                    f"n, {name}": of["n"],
                    name: of["value"],
                    f"z, {name}": of["z"],
                    f"final z, {name}": of["z "],
                }
        found.append(one | {"new": key not in shown and key[0] != "aa^b"})
    yield from found
    table = pd.DataFrame(found)
    for name, part in (("new", table[table["new"]]), ("without aa^b", table[table["offsets"] != "aa^b"])):
        line = {"offsets": name}
        for column, values in part.filter(like="z, ").items():
            line[column] = f"{(values.abs() <= 2).sum()} of {values.count()}, {(values**2).mean():.1f}"
        yield line


def kept_of_mnist():
    """Kept trials of MNIST with 16 hidden units."""
    where = {"data_name": "mnist", "data_flip": False, "model_hidden": "16", "batch": "100"}
    kept = cbm.open_results(Path(__file__).parent / "results").summaries()
    kept = kept[(kept[list(where)].astype(str) == pd.Series(where).astype(str)).all(axis=1)]
    return kept[kept["n_train"] == 60000].drop_duplicates(["run_id", "trial"])


def rows_mnist_all(results):
    """All values of MNIST with 16 hidden units: z with all rows (kept results) and with the first 50,000."""
    shown = results.summaries("rows-mnist")[["offsets", "init", "sampler", "learning_rate"]]
    parts = {"all rows": kept_of_mnist(), "50,000": results.summaries("rows-mnist-all")}
    return all_of_mnist(parts, {*shown.itertuples(index=False, name=None)})


def rows_and_sweeps_mnist(results):
    """Those of PCD-1: z of one and two sweeps on all rows (kept results), and of two on the first 50,000."""
    kept, fewer = kept_of_mnist(), results.summaries("rows-and-sweeps-mnist")
    two = kept[kept["sampler"] == "PCD-2"]
    parts = {"one sweep": kept, "two sweeps": two.assign(sampler="PCD-1")}
    return all_of_mnist(parts | {"50,000, two sweeps": fewer.assign(sampler="PCD-1")})


def sliding_mnist(results):
    """dd^b_s on the first 50,000 rows of MNIST by the sliding factor of the hidden offsets."""
    return on_mnist(results, "sliding-mnist", ["learning_rate", "sliding_factor_hidden"])


def late_offsets_mnist(results):
    """aa with offsets that move before (aa^b) and after the gradient step (aa^l)."""
    return on_mnist(results, "late-offsets-mnist", ["sampler", "learning_rate", "offsets"])


def fixed_mean_mnist(results):
    """The same as fixed-mean on MNIST."""
    return on_mnist(results, "fixed-mean-mnist", ["sampler", "sliding_factor_visible"])


def flipped_rates(results):
    """Maxima of normal machines on MNIST and flipped MNIST, paired by trial; without trial 0."""
    summary = results.summaries("flipped-rates").query("trial > 0")
    for (rate, epochs), rows in summary.groupby(["learning_rate", "epochs"]):
        best = rows.pivot_table(index="trial", columns="data", values="train_log_likelihood_max")
        differences = best["flipped-mnist"] - best["mnist"]
        means = {name: best[name].mean() for name in ("mnist", "flipped-mnist")}
        where = {"learning_rate": rate, "epochs": epochs, "n": len(best)}
        yield where | means | {"difference": differences.mean(), "±": error(differences)}


def lower_bounds(results, experiment, axis):
    """Maxima of the mean and final values of DBMs, with and without pre-training, by one setting."""
    summary = results.summaries(experiment)
    curves = results.curves(experiment)
    axes = ["data", "offsets", "pretraining_epochs", axis]
    for part in ("train", "test"):
        for key, rows in summary.groupby(axes, dropna=False):
            where = {"dataset": key[0], "offsets": key[1], "pretraining_epochs": int(key[2])}
            cell = published(model="dbm", split=part, **where)
            of_cell = curves[curves["run_id"].isin(rows["run_id"])]
            yield (
                {"part": part}
                | dict(zip(axes, key, strict=True))
                | beside(*at_best_mean(of_cell, f"{part}_lower_bound"), cell)
            )


def doubling(results):
    """Lower bounds of DBMs without pre-training, and with two kinds of it."""
    return lower_bounds(results, "doubling", "pretraining_doubling")


def deep_sweeps(results):
    """Lower bounds of DBMs with one and two sweeps per update."""
    return lower_bounds(results, "deep-sweeps", "sampler")


def deep_sweeps_connect4(results):
    """Lower bounds of DBMs on connect4 with two sweeps per update, in the first 800 epochs."""
    return lower_bounds(results, "deep-sweeps-connect4", "sampler")


def deep_means(results):
    """Lower bounds of pre-trained DBMs: maxima of the mean over trials, and means of their maxima."""
    maxima = results.summaries("deep-means").groupby("offsets").mean(numeric_only=True)
    for row in lower_bounds(results, "deep-means", "sampler"):
        yield row | {"mean of maxima": maxima.loc[row["offsets"], f"{row['part']}_lower_bound_max"]}


EXPERIMENTS = {
    "swaps": swaps,
    "swaps-more": swaps_more,
    "swaps-bars": swaps_bars,
    "swaps-mnist": swaps_mnist,
    "offset-means": offset_means,
    "offset-means-mnist": offset_means_mnist,
    "initial-weights": initial_weights,
    "gradient-lengths": gradient_lengths,
    "own-coordinates": own_coordinates,
    "chains": chains,
    "adult-stopping": adult_stopping,
    "look-ahead": look_ahead,
    "flipped-rates": flipped_rates,
    "fixed-mean": fixed_mean,
    "fixed-mean-mnist": fixed_mean_mnist,
    "batch-order": batch_order,
    "batch-order-mnist": batch_order_mnist,
    "rows-mnist": rows_mnist,
    "rows-mnist-all": rows_mnist_all,
    "rows-and-sweeps-mnist": rows_and_sweeps_mnist,
    "sliding-mnist": sliding_mnist,
    "late-offsets-mnist": late_offsets_mnist,
    "doubling": doubling,
    "deep-sweeps": deep_sweeps,
    "deep-sweeps-connect4": deep_sweeps_connect4,
    "deep-means": deep_means,
    "final-epochs": final_epochs,
    "final-sweeps": final_sweeps,
    "sweeps-maxima": sweeps_maxima,
    "sweeps-200": sweeps_200,
}


def main() -> None:
    results = cbm.open_results(sys.argv[1])
    for name in sys.argv[2:] or [name for name in EXPERIMENTS if name in results.experiments()]:
        print(f"\n{name}: {EXPERIMENTS[name].__doc__}\n")
        print(pd.DataFrame(EXPERIMENTS[name](results)).to_string(index=False, float_format="{:.3f}".format))


if __name__ == "__main__":
    main()

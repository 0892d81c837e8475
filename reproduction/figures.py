"""Draw the panels of the paper's figures from results.

    python reproduction/figures.py RESULTS FOLDER [NUMBER...]

writes FOLDER/figure-NUMBER-PANEL.png by the `cbm plot` commands in
``paper/figures.yaml``. If an experiment has not been run but its -short one has, that
one is drawn. Panels without results are named and left out.
"""

import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from findings import selected
from printed import PAPER

import cbm_cli as cbm


def figures() -> dict[int, dict[str, Any]]:
    """Return what each figure shows, and the commands of its panels."""
    return yaml.safe_load((PAPER / "figures.yaml").read_text(encoding="utf-8"))


def command(panel: Mapping[str, Any], trials: pd.DataFrame) -> list[str]:
    """Return the words behind ``cbm plot RESULTS`` for a panel.

    Of a panel with ``trial``, each experiment becomes the names RUN:TRIAL of its
    selected runs.
    """
    known = {*trials["experiment"]}
    words = [
        f"{word}-short" if word not in known and f"{word}-short" in known else word
        for word in shlex.split(panel["plot"])
    ]
    if "trial" in panel:
        pairs = [
            words[i + 1].split("=")
            for i, word in enumerate(words)
            if word == "--select"
        ]
        settings = {name: values.split(",") for name, values in pairs}
        runs = trials[trials["experiment"].isin(words) & selected(trials, settings)]
        names = [f"{run}:{panel['trial']}" for run in runs["run_id"].unique()]
        own = [i for i, word in enumerate(words) if word in known]
        words[own[0] : own[-1] + 1] = names
        words = [
            w
            for i, w in enumerate(words)
            if "--select" not in words[max(0, i - 1) : i + 1]
        ]
    return words


def main() -> None:
    results, folder, *numbers = sys.argv[1:]
    trials = cbm.open_results(results).summaries()
    Path(folder).mkdir(parents=True, exist_ok=True)
    for number, figure in figures().items():
        if numbers and str(number) not in numbers:
            continue
        print(f"Figure {number}: {figure['shows']}")
        for place, panel in enumerate(figure["parts"], 1):
            picture = Path(folder) / f"figure-{number}-{place}.png"
            words = [
                *command(panel, trials),
                "-o",
                str(picture),
                "--title",
                panel.get("title", ""),
            ]
            subprocess.run(
                [sys.executable, "-m", "cbm_cli.cli", "plot", results, *words],
                check=False,
            )


if __name__ == "__main__":
    main()

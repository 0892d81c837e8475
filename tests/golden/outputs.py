"""What commands print of a results folder that cbm 0.1.0 wrote, and how to compare it.

The folder, ``results-0.1.0.zip``, holds RBMs, deep machines, auto encoders and a row of the paper's table 2.
"""

import re
import zipfile
import zlib
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from cbm_cli.cli import main

HERE = Path(__file__).parent
RESULTS, OUTPUTS = HERE / "results-0.1.0.zip", HERE / "outputs"
_DEEP = "deep/trials/bars-and-stripes_dbm-4-3_ddd-b-s_PCD-1_0.1_*/trial-000.npz"
_ENCODER = "encoder/trials/bars-and-stripes_auto-encoder-half_dd-b-s_*/trial-001.best.npz"
_AIS = ("--ais", "--temperatures", "100", "--runs", "10", "--json")
_RAISE = ("--raise", "--temperatures", "50", "--runs", "10", "--json")
_TURNED = ("--rows", "offsets", "--columns", "sampler", "--statistic", "final")
_BARS = ("--data", "bars-and-stripes:size=3")

# File of the output -> command; the results folder, or a file in it, stands at {}.
COMMANDS: dict[str, tuple[str, ...]] = {
    **{f"table.{suffix}": ("table", "{}", "-f", name) for suffix, name in
       {"txt": "text", "md": "markdown", "csv": "csv", "json": "json", "tex": "latex"}.items()},
    "table-holm.txt": ("table", "{}", "bars", *_TURNED, "--test", "rank-sum", "--correction", "holm"),
    "table-weight-norm.csv": ("table", "{}", "bars", "--metric", "weight_norm", "-f", "csv"),
    **{f"compare.{suffix}": ("compare", "{}", "-f", name) for suffix, name in
       {"txt": "text", "md": "markdown", "csv": "csv", "json": "json"}.items()},
    "evaluate-exact.json": ("evaluate", "{}", "bars", "deep", "--exact", "--json"),
    "evaluate-ais.json": ("evaluate", "{}", "bars", "deep", *_AIS),
    "evaluate-raise.json": ("evaluate", "{}", "bars", *_RAISE),
    "evaluate-deep-exact.json": ("evaluate", "{}/" + _DEEP, "--exact", *_BARS, "--json"),
    "evaluate-deep-ais.json": ("evaluate", "{}/" + _DEEP, *_AIS, *_BARS),
    "evaluate-encoder.json": ("evaluate", "{}/" + _ENCODER, *_BARS, "--json"),
}  # fmt: skip


def unpack(folder: Path) -> Path:
    """Unpack the results folder of 0.1.0; ValueError with a plain message where the file is damaged."""
    try:
        with zipfile.ZipFile(RESULTS) as file:
            file.extractall(folder)
    except (OSError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"{RESULTS}: missing or damaged ({type(error).__name__}); take it from version control again"
        ) from None
    return folder


def output_of(name: str, results: Path) -> str:
    """Run the command of an output; return what it prints to stdout."""
    target = COMMANDS[name][1].removeprefix("{}").lstrip("/")
    (place,) = results.glob(target) if target else [results]
    result = CliRunner().invoke(main, [COMMANDS[name][0], str(place), *COMMANDS[name][2:]])
    if result.exit_code:
        raise AssertionError(f"{name}: exit code {result.exit_code}: {result.stderr}") from result.exception
    return result.stdout


def parted(text: str) -> tuple[str, np.ndarray]:
    """Text without its numbers, and its numbers, those with a decimal point or an exponent."""
    number = r"(?<![\w.])-?\d+(?:\.\d+(?:e[+-]?\d+)?|e[+-]?\d+)(?!\w)"
    return re.sub(number, "#", text), np.array([float(found) for found in re.findall(number, text)])

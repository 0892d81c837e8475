"""What commands print of the results of ``grid.yaml``, which are kept in
``results.zip``.
"""

import re
import zipfile
from pathlib import Path

import numpy as np

from tests.builders import cbm

HERE = Path(__file__).parent
RESULTS, OUTPUTS = HERE / "results.zip", HERE / "outputs"
_RBM = "rbm-4_aa-b_PCD-1_0.1:0 --data bars-and-stripes:size=3"
_DEEP = "dbm-4-3_ddd-b-s_PCD-1_0.1:0 --data bars-and-stripes:size=3"
_ENCODER = "auto-encoder-half_dd-b-s:1:best --data bars-and-stripes:size=3"

_AIS = "--temperatures 100 --runs 10 --ais"

# File -> commands; the first word behind a command is a place in the results folder.
COMMANDS = {
    "table.txt": ["table . -f text"],
    "table.md": ["table . -f markdown"],
    "table.tex": ["table . -f latex"],
    "table.csv": ["table . -f csv"],
    "ls.txt": ["ls .", "ls . deep"],
    "best.txt": ["best . bars", "best . encoder"],
    "evaluate.json": [
        f"evaluate {words} --json"
        for words in (f"{_RBM} {_AIS}", f"{_DEEP} {_AIS}", _ENCODER)
    ],
    "evaluate.txt": [
        f"evaluate {words}"
        for words in (
            f"{_RBM} --exact",
            f"{_DEEP} --exact",
            f"{_DEEP} {_AIS}",
            _ENCODER,
        )
    ],
}


def unpack(folder: Path) -> Path:
    """Unpack the results folder."""
    with zipfile.ZipFile(RESULTS) as file:
        file.extractall(folder)
    return folder


def output_of(name: str, results: Path) -> str:
    """Run the commands of an output; return what they print, without places and
    dates.
    """
    printed = ""
    for command in COMMANDS[name]:
        first, place, *words = command.split()
        result = cbm(first, results / place, *words)
        printed += result.output if first == "best" else result.stdout
    return re.sub(
        r"\d{4}-\d\d-\d\d \d\d:\d\d", "DATE", printed.replace(str(results), "RESULTS")
    )


def parted(text: str) -> tuple[str, np.ndarray]:
    """Text without its numbers, and its numbers, those with a decimal point or an
    exponent.
    """
    number = r"(?<![\w.])-?\d+(?:\.\d+(?:e[+-]?\d+)?|e[+-]?\d+)(?!\w)"
    return re.sub(number, "#", text), np.array(
        [float(found) for found in re.findall(number, text)]
    )

"""How every picture looks: one colour, marker and dash for each scheme, sizes, names, and the files."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any
from zlib import crc32

from matplotlib import rc_context, rcdefaults, rcParams
from matplotlib.axes import Axes
from matplotlib.axis import Tick
from matplotlib.cbook import is_math_text
from matplotlib.figure import Figure
from matplotlib.mathtext import MathTextParser
from matplotlib.text import Text

from cbm_cli.errors import CbmError
from cbm_cli.grid.words import with_name
from cbm_cli.results.selection import Key
from cbm_cli.text import harmless

# Okabe & Ito's colours and four of Paul Tol's, told apart with every common colour blindness, and markers for
# prints in grey. A scheme has the same ones in every picture.
SCHEMES = {
    "00": ("#000000", "s"),
    "d0": ("#0072B2", "^"),
    "dd": ("#009E73", "o"),
    "aa": ("#D55E00", "D"),
    "mm": ("#CC79A7", "v"),
    "dm": ("#E69F00", "P"),
    "md": ("#56B4E9", "X"),
    "0d": ("#8C6D00", "<"),
    "m0": ("#332288", ">"),
    "0m": ("#882255", "*"),
    "hh": ("#999933", "p"),
    "rr": ("#777777", "h"),
}
COLOURS = {letters: colour for letters, (colour, _) in SCHEMES.items()}
OTHER_COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
OTHER_COLOURS += ["#332288", "#882255", "#999933", "#44AA99", "#AA4499", "#661100"]
MARKERS = [marker for _, marker in SCHEMES.values()]
DASHES: list[Any] = ["-", (0, (5, 2)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5))]
_VARIANTS = {(False, False): 0, (False, True): 1, (True, False): 2, (True, True): 3}  # (^l, _s) -> dashes
BOUND: dict[str, Any] = {"color": "#777777", "linewidth": 1.0, "linestyle": (0, (2, 2))}

# Metadata by suffix, so that two pictures of the same results have the same bytes.
METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".svg": {"Date": None},
}
_FORMULAS = ("offsets", "sampler", "learning_rate")  # settings that are set as formulas
WIDTHS = {"column": 3.4, "page": 7.0}  # inches: one column, and both columns, of a journal

Look = dict[str, Any]  # colour, dashes and marker of a line, as Matplotlib names them


def scheme_look(scheme: str) -> Look:
    """Return the look of a scheme: colour and marker by its letters, dashes by ``^l`` and ``_s``."""
    letters = re.split("[_^]", scheme, maxsplit=1)[0]
    short = letters[:2] if len(set(letters)) == 1 else letters  # a DBM's 000 looks like 00
    spare = crc32(short.encode())
    others = (OTHER_COLOURS[spare % len(OTHER_COLOURS)], MARKERS[spare // 16 % len(MARKERS)])
    colour, marker = SCHEMES.get(short, others)
    return _look(colour, marker, _VARIANTS["^l" in scheme, "_s" in scheme], hollow="_s" in scheme)


def _look(colour: str, marker: str, dashes: int, hollow: bool) -> Look:
    face = "white" if hollow else colour
    return {"color": colour, "linestyle": DASHES[dashes], "marker": marker, "markerfacecolor": face}


def looks_of(keys: Sequence[Key], columns: Sequence[str]) -> dict[Key, Look]:
    """Return a look for each line: that of its scheme, where the lines have one; no two lines look alike."""
    looks: dict[Key, Look] = {}
    for i, key in enumerate(keys):
        look = _look(OTHER_COLOURS[i % len(OTHER_COLOURS)], MARKERS[i % len(MARKERS)], 0, hollow=False)
        if "offsets" in columns:
            look = scheme_look(key[columns.index("offsets")])
        variants = product([look["marker"], *MARKERS], (2, 3, 1, 0), (True, False))
        while look in looks.values():
            look = _look(look["color"], *next(variants))
        looks[key] = look
    return looks


def named(column: str, value: str) -> str:
    """Return a setting, or the name of a metric, in a title or the legend."""
    if column == "metric":
        return in_words(value)
    label = with_name(column, value)
    return label.latex if column in _FORMULAS else plain(label.text)


def names_of(columns: Sequence[str], key: Key) -> str:
    """Return the values of some settings as a picture names a method."""
    return ", ".join(filter(None, map(named, columns, key)))


def plain(text: str) -> str:
    """Return text that Matplotlib does not read as a formula, and without characters that end a line."""
    return harmless(text, kept="").replace("$", r"\$")


def in_words(column: str) -> str:
    """Return the name of a metric for an axis."""
    if unit := re.fullmatch(r"lam_(\d+)", column):
        return f"offset of hidden unit {unit[1]}"
    if gradient := re.fullmatch(r"angle_natural_(\w+)", column):
        return f"{gradient[1]}: angle to natural gradient"
    return plain(column.replace("_", " ").replace("log ", "log-"))


def plain_axes(axes: Axes) -> None:
    """Remove the frame above and to the right, and make the ticks small and grey."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize="small", color="#777777")


@contextmanager
def own_style(points: float = 10.0) -> Iterator[None]:
    """Make figures in Matplotlib's own style, not the user's; their texts stay text in files."""
    with rc_context():
        rcdefaults()
        rcParams.update(
            dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize", "legend.fontsize"), points)
        )
        rcParams.update({"pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "cbm"})
        yield


def check_formula(option: str, text: str) -> str:
    """Return the text of a title; CbmError if it has a formula that Matplotlib cannot read."""
    try:
        if is_math_text(text):
            MathTextParser("path").parse(text)
    except ValueError:
        raise CbmError(f"{option} {text}: cannot be read as a formula; write \\$ for a dollar") from None
    return harmless(text, kept="\n")


def check_output(path: Path) -> None:
    """Raise CbmError for a suffix that pictures do not have."""
    if path.suffix.lower() not in METADATA:
        raise CbmError(f"{path}: the suffix must be one of {', '.join(METADATA)}")


def texts_of(figure: Figure) -> str:
    """Return the titles, names, legends and captions of a figure, a line each."""
    numbers = {label for tick in figure.findobj(Tick) for label in (tick.label1, tick.label2)}
    texts = (text.get_text().strip() for text in figure.findobj(Text) if text not in numbers)
    return "\n".join(dict.fromkeys(filter(None, texts)))


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, PDF or SVG, by the suffix; CbmError if the file cannot be written.

    PNG and SVG say in their description what is written in the picture.
    """
    check_output(path)
    metadata = METADATA[path.suffix.lower()]
    try:
        with own_style():
            if path.suffix.lower() != ".pdf":
                metadata = metadata | {"Description": texts_of(figure)}
            figure.savefig(path, dpi=160, metadata=metadata)
    except OSError as error:
        raise CbmError(f"{path}: cannot be written ({error.strerror})", "system") from None

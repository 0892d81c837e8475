"""How every picture looks: one colour, marker and dash for each scheme, fonts, and
settings in words.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any
from zlib import crc32

from matplotlib import rc_context

from cbm_cli.grid.words import with_name
from cbm_cli.results.columns import Key
from cbm_cli.text import harmless

# Okabe & Ito's colours and four of Paul Tol's, which differ with every common colour
# blindness, and markers for prints in grey. A scheme has the same ones in every
# picture.
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
OTHER_COLOURS = [
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
]
OTHER_COLOURS += ["#332288", "#882255", "#999933", "#44AA99", "#AA4499", "#661100"]
MARKERS = [marker for _, marker in SCHEMES.values()]
DASHES: list[Any] = [
    "-",
    (0, (5, 2)),
    (0, (1.2, 1.2)),
    (0, (6, 1.5, 1.2, 1.5)),
]  # by ^l and _s
BOUND: dict[str, Any] = {"color": "#777777", "linewidth": 0.8, "linestyle": (0, (2, 2))}

LARGEST = 1e150  # number that is drawn: the squares of larger ones are infinite
_FORMULAS = ("offsets", "sampler", "learning_rate")  # settings that are set as formulas
_SIZES = ("font.size", "axes.titlesize", "axes.labelsize", "legend.fontsize")

Look = dict[str, Any]  # colour, dashes and marker of a line, as Matplotlib names them


def scheme_look(scheme: str) -> Look:
    """Return the look of a scheme: colour and marker by its letters, dashes by ``^l``
    and ``_s``.
    """
    letters = re.split("[_^]", scheme, maxsplit=1)[0]
    if len(set(letters)) == 1:
        letters = letters[:2]  # a DBM's 000 looks like 00
    spare = crc32(letters.encode())
    colour = OTHER_COLOURS[spare % len(OTHER_COLOURS)]
    marker = MARKERS[spare // 16 % len(MARKERS)]
    colour, marker = SCHEMES.get(letters, (colour, marker))
    variant = ("_s" in scheme) + 2 * ("^l" in scheme)
    return {"color": colour, "marker": marker, "linestyle": DASHES[variant]}


def looks_of(keys: Iterable[Key], columns: Sequence[str]) -> dict[Key, Look]:
    """Return a look for each line: that of its scheme, where the lines have one; no two
    lines look alike.
    """
    looks: dict[Key, Look] = {}
    for place, key in enumerate(dict.fromkeys(keys)):
        look = {
            "color": OTHER_COLOURS[place % len(OTHER_COLOURS)],
            "marker": MARKERS[place % len(MARKERS)],
            "linestyle": "-",
        }
        if "offsets" in columns:
            look = scheme_look(key[columns.index("offsets")])
        markers = [look["marker"], *MARKERS]
        dashes = [*DASHES[2:], *DASHES[1::-1]]
        for marker, linestyle in product(markers, dashes):
            if look not in looks.values():
                break
            look = look | {"marker": marker, "linestyle": linestyle}
        looks[key] = look
    return looks


def named(column: str, value: str) -> str:
    """Return a setting, or the name of a metric, in a title or the legend."""
    if column == "metric":
        return in_words(value)
    label = with_name(column, value)
    return label.latex if column in _FORMULAS else plain(label.text)


def names_of(columns: Sequence[str], key: Key) -> str:
    """Return the values of some settings as a picture names them; a metric is named on
    the axis.
    """
    words = []
    for column, setting in zip(columns, key, strict=True):
        if column != "metric":
            words.append(named(column, setting))
    return ", ".join(filter(None, words))


def plain(text: str) -> str:
    """Return text that Matplotlib does not read as a formula, and without characters
    that end a line.
    """
    return harmless(text, kept="").replace("$", r"\$")


def in_words(column: str) -> str:
    """Return the name of a metric for an axis."""
    column = re.sub(r"^lam_(\d+)$", r"offset of hidden unit \1", column)
    column = re.sub(r"^angle_natural_(\w+)$", r"\1: angle to natural gradient", column)
    return plain(column.replace("_", " ").replace("log ", "log-"))


@contextmanager
def own_style(points: float = 10.0, **more: Any) -> Iterator[None]:
    """Make figures in the style of a journal, not the user's; their texts stay text in
    files.
    """
    settings = Path(__file__).with_name("journal.mplstyle")
    changes: Any = {**dict.fromkeys(_SIZES, points), **more}
    with rc_context(changes, settings):
        yield

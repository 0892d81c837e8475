"""The committed pictures are those that the code draws: drawn again, they show the
same.
"""

import re
import shlex
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from PIL import Image

from tests.builders import cbm

DOCS = Path(__file__).parents[2] / "docs"
IMAGES, PAPER, KEPT = (
    DOCS / "images",
    DOCS / "reproduction",
    DOCS.parent / "reproduction/results",
)
GALLERY, DRAWN = (
    re.sub(r" *\\\n *", " ", (DOCS / "gallery.md").read_text("utf-8")),
    r"^cbm (plot .*) -o (\S+\.png)$",
)
COMMANDS = {name: call for call, name in re.findall(DRAWN, GALLERY, re.M)}
# What takes long to train and is not kept; the pages say that earlier versions drew it.
EARLIER = {"figure-16-aaa.png", *(f"figure-{number}.png" for number in (15, 16))}
TRAINED = {
    "gallery-recorded.png",
    "centering.png",
    "enhanced-gradient.png",
}  # but not kept
TRAINED |= {f"gallery-{kind}.png" for kind in ("filters", "activity", "samples")}
BLOCK = 16  # pixels: fonts may differ by some, lines do not


def blocks(path):
    """Mean colours of squares of a picture, in [0, 1]."""
    pixels = np.asarray(Image.open(path).convert("RGB")) / 255
    high, wide = (size // BLOCK * BLOCK for size in pixels.shape[:2])
    squares = pixels[:high, :wide].reshape(
        high // BLOCK, BLOCK, wide // BLOCK, BLOCK, 3
    )
    return squares.mean(axis=(1, 3))


def assert_alike(committed, drawn):
    """The same caption and size, and the same colours everywhere but for a shift of
    some pixels.
    """
    one, other = (Image.open(path) for path in (committed, drawn))
    remedy = (
        f"{committed.name} is not what the code draws; draw it again "
        "(docs/make_images.sh)"
    )
    assert (one.info["Description"], one.size) == (
        other.info["Description"],
        other.size,
    ), remedy
    if matplotlib.__version_info__ < (3, 10):
        pytest.skip("captions are alike; Matplotlib before 3.10 places lines otherwise")
    assert np.abs(blocks(committed) - blocks(drawn)).max() < 0.15, remedy


@pytest.mark.parametrize("name", sorted({*COMMANDS} - EARLIER - TRAINED))
def test_committed_pictures_are_those_of_the_code(tmp_path, name):
    words = [
        str(KEPT) if word == "results" else word for word in shlex.split(COMMANDS[name])
    ]
    cbm(*words, "-o", tmp_path / name)
    assert_alike(
        (PAPER if name.startswith("figure") else IMAGES) / name, tmp_path / name
    )


def test_pictures_of_earlier_versions_are_known_and_said():
    pictures = [*IMAGES.glob("*.png"), *PAPER.glob("*.png")]
    without = {
        path.name
        for path in pictures
        if Image.open(path).info.get("dpi", (0,))[0] < 299
    }
    others = {
        "report.png",
        "gallery-completed.png",
    }  # of a browser; completed rows are pixels
    assert without - others == EARLIER
    said = "drawn (by an earlier version|when the experiments were run)"
    for page in DOCS.rglob("*.md"):
        text = page.read_text("utf-8")
        assert not any(f"{name})" in text for name in EARLIER) or re.search(
            said, text, re.I
        ), page

"""The published data sets: their files, checksums, sizes and where they come from.

Checksums are of the content after gunzip, so that a file may lie there packed or not. ``git`` is SHA-1 as
git makes it, for files whose only published checksum is their name in a git repository.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cbm_cli.datasets.dataset import Image


@dataclass(frozen=True)
class File:
    """A published file; ``stem`` may have ``.gz`` added, and any one of the ``checksums`` is right."""

    stem: str
    checksums: tuple[str, ...]
    urls: tuple[str, ...] = ()


@dataclass(frozen=True)
class Published:
    """What is known of a published data set.

    Attributes
    ----------
    folder : str
        Where its files lie below a folder of data.
    forms : tuple of dict of str to File
        Alternatives, each the files of all parts; one file may hold several parts.
    shapes : dict of str to (int, int)
        (rows, width) of each part.
    ones : float or None
        Share of ones in all parts, at threshold 0.5, where it has been measured.
    home, cite, licence : str
        Its first publication, whom to cite, and on what terms it may be used.
    image : Image or None
        How to draw a row.
    remark : str
        What one should know before comparing results.
    """

    folder: str
    forms: tuple[dict[str, File], ...]
    shapes: dict[str, tuple[int, int]]
    ones: float | None
    home: str
    cite: str
    licence: str = "none stated"
    image: Image | None = None
    remark: str = ""

    @property
    def files(self) -> tuple[File, ...]:
        """All files of all forms, each once."""
        return tuple({file.stem: file for form in self.forms for file in form.values()}.values())


_DEBD = (
    "https://raw.githubusercontent.com/arranger1044/DEBD/850908666388f1b1c766a304b37dae14613f1e51/datasets/"
)
_MADE = "https://raw.githubusercontent.com/mgermain/MADE/514849eb9451311c02049f9e2d9a17fac589996a/datasets/"
_LAROCHELLE = "http://www.cs.toronto.edu/~larocheh/public/datasets/"
_UCI = "CC BY 4.0 (UCI Machine Learning Repository)"
_PARTS = ("train", "valid", "test")


def _texts(name: str, checksums: Mapping[str, tuple[str, ...]], in_debd: bool = True) -> dict[str, File]:
    """Return the text files of the eight sets: zeros and ones parted by commas."""
    urls = {part: (f"{_DEBD}{name}/{name}.{part}.data",) if in_debd else () for part in checksums}
    return {part: File(f"{name}.{part}.data", sums, urls[part]) for part, sums in checksums.items()}


def _npz(name: str, git: str) -> dict[str, File]:
    file = File(f"{name}.npz", (f"git:{git}",), (f"{_MADE}{name}.npz",))
    return dict.fromkeys(_PARTS, file)


def _sha256(train: str, valid: str, test: str) -> dict[str, tuple[str, ...]]:
    return {part: (f"sha256:{sum_}",) for part, sum_ in zip(_PARTS, (train, valid, test), strict=True)}


def _eight(
    name: str,
    forms: tuple[dict[str, File], ...],
    rows: tuple[int, ...],
    width: int,
    ones: float | None,
    **about,
) -> Published:
    shapes = {part: (count, width) for part, count in zip(_PARTS, rows, strict=True)}
    about = {"cite": _EIGHT, **about}
    return Published(f"binary/{name}", forms, shapes, ones, **about)


def _mnist(part: str, stem: str, sha256: str) -> dict[str, File]:
    return {part: File(stem, (f"sha256:{sha256}",), tuple(f"{base}{stem}.gz" for base in _MNIST))}


_MNIST = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "http://yann.lecun.com/exdb/mnist/",
)
_CALTECH = File(
    "caltech101_silhouettes_28_split1.mat",
    ("sha256:eb6735e8d84b1850fabc5590124aab1755e90c9fd28123585324398405e1e42a",),
    ("https://people.cs.umass.edu/~marlin/data/caltech101_silhouettes_28_split1.mat",),
)
_EIGHT = (
    "H. Larochelle, Y. Bengio, J. Turian: Tractable multivariate binary density estimation and the "
    "restricted Boltzmann forest. Neural Computation 22 (2010)"
)
_RCV1_VALID = ("sha256:d3a9c4b4d67fac28fcdf979acbc471b6ed688fce0c1cd7949379dd291021312e",)
_WEB = {
    "trainvalid": ("sha256:a0fc01c02683768e7763991eb3e9c8109ae99f97208bac3895ed26430e02bd42",),
    "test": ("sha256:5402e7941023849327a08da42fa6fda67f635e58b1bc21d7530243009e0b3f9d",),
}

PUBLISHED = {
    "mnist": Published(
        "mnist",
        (
            _mnist(
                "train",
                "train-images-idx3-ubyte",
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            )
            | _mnist(
                "test",
                "t10k-images-idx3-ubyte",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            ),
        ),
        {"train": (60000, 784), "test": (10000, 784)},
        0.13254,  # train 0.13226, test 0.13423
        home="http://yann.lecun.com/exdb/mnist/",
        cite="Y. LeCun, L. Bottou, Y. Bengio, P. Haffner: Gradient-based learning applied to document "
        "recognition. Proceedings of the IEEE 86 (1998)",
        licence="CC BY-SA 3.0, Yann LeCun and Corinna Cortes",
        image=Image(28, 28),
    ),
    "caltech101-silhouettes": Published(
        "caltech101_silhouettes",
        (dict.fromkeys(_PARTS, _CALTECH),),
        {"train": (4100, 784), "valid": (2264, 784), "test": (2307, 784)},
        0.54391,  # train 0.5511, valid 0.5360, test 0.5390
        home="https://people.cs.umass.edu/~marlin/data.shtml",
        cite="B. M. Marlin, K. Swersky, B. Chen, N. de Freitas: Inductive principles for restricted "
        "Boltzmann machine learning. AISTATS 2010",
        licence="none stated; derived from Caltech 101, CC BY 4.0 (https://doi.org/10.22002/D1.20086)",
        image=Image(28, 28, "F"),
        remark="Rows are kept as published, column by column; background pixels are 1. The paper swaps the "
        "sizes of the validation and the test part.",
    ),
    "adult": _eight(
        "adult",
        (
            _texts(
                "adult",
                _sha256(
                    "5590ab772dd51ed1b29bb972d2b416a58aee902b88be2f89b8c77f28f3e3db77",
                    "dbd7472c04c648e988264b90b76dc086294958ef4b395ee916090b2b82146e59",
                    "169b5ea932df510bd09dd199013c897aef9a1b5325688380697c85494d7bb14f",
                ),
            ),
        ),
        (5000, 1414, 26147),
        123,
        0.11276,
        home="https://archive.ics.uci.edu/dataset/2/adult",
        licence=_UCI,
    ),
    "connect4": _eight(
        "connect4",
        (
            _texts(
                "connect4",
                _sha256(
                    "1cf1f300a290a33e15f8989364dd7e87c008699c3627e05cc70a5f2dd01cafd8",
                    "e4657afaf1b6880aed84b64e348d2d502b32d90ad3177bea730dd5e0384fd3b8",
                    "e3f07544fc0cdeb74663d4dbdac9de58fe71db57b7e835767264a23b53625de3",
                )
                | {
                    "test": (
                        "git:088e6da63a6e9d5cab1af67518fd6b202cef6f51",
                        "sha256:e3f07544fc0cdeb74663d4dbdac9de58fe71db57b7e835767264a23b53625de3",
                    )
                },
            ),
        ),
        (16000, 4000, 47557),
        126,
        0.33333,
        home="https://archive.ics.uci.edu/dataset/26/connect+4",
        licence=_UCI,
        remark="Copies of the test part differ in the order of their rows; both orders are taken as right.",
    ),
    "dna": _eight(
        "dna",
        (
            _texts(
                "dna",
                _sha256(
                    "f04607cc13d5871a30baf7cccaaadeeccd8b01e8d805e213ae41520dc9e364a6",
                    "4fef649046f58e1f10ed7ebd005ae96000bb9f397c6779d4b7acef31a0b8d5eb",
                    "fec3ae7b26804020a9c43c99828441c5e08bb76b23719368a74ad2b09af99100",
                ),
                in_debd=False,  # another split there
            ),
            _npz("dna", "6375b479f1a0c6cdc4ff836d7e53c0814e10873f"),
        ),
        (1400, 600, 1186),
        180,
        0.25267,
        home="https://archive.ics.uci.edu/dataset/69/molecular+biology+splice+junction+gene+sequences",
        licence=_UCI,
    ),
    "mushrooms": _eight(
        "mushrooms",
        (
            _texts(
                "mushrooms",
                _sha256(
                    "465c712c066bbbee3ccceded24bbe42b4c379df67b524e28cce9bf3a8b83f27b",
                    "5a067e6854df71623415e6adc8e913cbff766637a324788882ba800907aa5385",
                    "313c5f04b5d0a18bee2f2ffa264be265d09f5362aad6f714637acd9552f81aa0",
                ),
            ),
        ),
        (2000, 500, 5624),
        112,
        0.18750,
        home="https://archive.ics.uci.edu/dataset/73/mushroom",
        licence=_UCI,
    ),
    "nips": _eight(
        "nips",
        (
            _texts(
                "nips",
                _sha256(
                    "4d744cb1f2c725405bff6ef6878df06eafbbc2a91f0510e0f3d8a508b05ec7bb",
                    "b06acd8e6a701d63d4e58b5076c11c59bcd0343fb9b1fbb5997459d3e6b8ca96",
                    "48711bdaffbd43aa439679785e19d9cc80c64a157fa84eadc5dce60ee4edf7bc",
                ),
            ),
        ),
        (400, 100, 1240),
        500,
        0.36675,
        home="https://cs.nyu.edu/~roweis/data.html",
    ),
    "ocr-letters": _eight(
        "ocr_letters",
        (
            _texts(
                "ocr_letters",
                _sha256(
                    "cf14ab30626ce194ca08a03359e81dfd4e3a649706be2f7f0676efcfa64ee622",
                    "b28ca9c39bb94fc3b0aeb3197304547bb066daaad0a1cce3da9749d068b74133",
                    "63c77682a932c5e5e04a429aba8dc7db5f942a87d549a8228fa144ec5ae998fb",
                ),
            ),
        ),
        (32152, 10000, 10000),
        128,
        0.21968,
        home="https://ai.stanford.edu/~btaskar/ocr/",
        image=Image(16, 8),
    ),
    "rcv1": _eight(
        "rcv1",
        (
            _texts(
                "rcv1",
                {
                    "train": ("git:25ee49d9df5566669d5994db5acf32844d8f4f7b",),
                    "valid": _RCV1_VALID,
                    "test": ("git:0d9b096f4b8a62dec4634f3f87a73e292b5cffc8",),
                },
            ),
        ),
        (40000, 10000, 150000),
        150,
        None,
        home=_LAROCHELLE + "rcv1/",
    ),
    "web": _eight(
        "web",
        (_npz("web", "a565424fc5782cb99d79788618cd6c332440a8a1"),),
        (14000, 3188, 32561),
        300,
        0.03883,
        home=_LAROCHELLE + "web/",
    ),
    "rcv1-valid": _eight(
        "rcv1",
        (_texts("rcv1", {"valid": _RCV1_VALID}),),
        (8000, 1000, 1000),
        150,
        0.13800,
        home=_LAROCHELLE + "rcv1/",
        remark="The published validation part of rcv1 alone, split 8,000 + 1,000 + 1,000 by position; "
        "results cannot be compared with those on rcv1.",
    ),
    "web-reshuffled": _eight(
        "web",
        (_texts("web", _WEB, in_debd=False),),
        (14000, 3188, 32561),
        300,
        0.03883,
        home="https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html",
        remark="All rows of web and its test part, but training and validation rows are divided by a seeded "
        "shuffle: not the published division.",
    ),
}

STAND_INS = {"rcv1": "rcv1-valid", "web": "web-reshuffled"}

"""Run-ids: a readable prefix and a hash of everything that changes the numbers.

Names are labels: of data sets, of files, and of the experiment that trials start from. What they hold counts.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from types import MappingProxyType
from typing import Any

from cbm_cli.grid.settings import Data, Settings, columns_of
from cbm_cli.kernels import KERNEL_VERSION

_LONGEST = 240  # characters of the readable part; names of folders have at most 255 bytes
# Columns of settings whose content is part of the identity instead of their text
_BY_CONTENT = {"data", *(f"data_{field}" for field in Data.model_fields)}
_BY_CONTENT |= {"start_from_path", "start_from_experiment", "record_what"}


def run_ids(
    settings: Settings,
    base_seed: int,
    data_digest: str,
    recorders: Mapping[str, str] = MappingProxyType({}),
    start: str = "",
) -> tuple[str, str]:
    """Return the name of the trials of a cell, and one that shorter and longer trainings share.

    They are the same for any number of trials, and whatever is asked about output.

    Parameters
    ----------
    data_digest : str
        `Dataset.digest`.
    recorders : mapping of str to str
        The texts of the user's own recorders, by name: of ``file.py:function`` text and function count.
    start : str
        What trials start from: the SHA-256 of a file, or the run-id of other trials.
    """
    records = (
        (name.rpartition(":")[2], recorders[name]) if name in recorders else name
        for name in settings.record.names
    )
    fields = settings.__dict__ | settings.resolved | {"records": (*records,)}
    texts = dict(chain.from_iterable(map(_texts_of, fields, fields.values())))  # columns as JSON
    ordered, rest = _in_order(tuple(texts)), json.dumps([start, base_seed, data_digest, KERNEL_VERSION])
    own, shared = (_digest(ordered(facts), rest) for facts in (texts, texts | _NO_LENGTH))
    words = f"{settings.model.kind}-{settings.model.size}", settings.offsets, settings.sampler_name
    readable = "_".join((*map(_plain, words), settings.learning_rate.slug))[:_LONGEST]
    return f"{readable}_{own}", f"{readable}_{shared}"


@lru_cache(maxsize=4096, typed=True)  # the cells of a grid share few values of each field
def _texts_of(name: str, value: Any) -> list[tuple[str, str]]:
    """Return the columns of a field whose text counts."""
    columns = columns_of(name, value).items()
    counted = [(column, plain) for column, plain in columns if column not in _BY_CONTENT]
    as_before = ("early_stopping_metric", None)  # there was no metric
    return [(column, _text(column, plain)) for column, plain in counted if (column, plain) != as_before]


@lru_cache
def _in_order(names: tuple[str, ...]) -> Callable[[Mapping[str, str]], tuple[str, ...]]:
    """Return what takes the texts of columns in the order of their names, which few sets of columns have."""
    return itemgetter(*sorted(names))


@lru_cache
def _plain(word: str) -> str:
    """Return a word as the names of folders may have it."""
    return re.sub(r"[^A-Za-z0-9.-]", "", word.replace("^", "-").replace("_", "-"))


def pretraining_id(facts: Mapping[str, Any], base_seed: int, data_digest: str) -> str:
    """Return the name of the folder of pre-trained layers, from everything that decides their values."""
    texts = [_text(*fact) for fact in sorted(facts.items())]
    digest = _digest(texts, json.dumps([base_seed, data_digest, KERNEL_VERSION]))
    return f"{facts['model'][:_LONGEST]}_{digest}"


def _text(name: str, value: Any) -> str:
    return f"{json.dumps(name)}: {json.dumps(value, sort_keys=True)}"


_NO_LENGTH = {name: _text(name, None) for name in ("updates", "epochs")}


def _digest(texts: Iterable[str], rest: str) -> str:
    """Return a hash of columns and a list of what else counts, as JSON."""
    return hashlib.sha256(f"[{{{', '.join(texts)}}}, {rest[1:]}".encode()).hexdigest()[:10]

"""Run-ids: a readable prefix and a hash of everything that changes the numbers.

Names are labels: of data sets, of files, and of the experiment that trials start from.
What they hold counts.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from cbm_cli.grid.settings import Data, Settings
from cbm_cli.kernels import KERNEL_VERSION

_READABLE = (
    240  # characters of the readable part; names of folders have at most 255 bytes
)
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
    """Return the name of the trials of a cell, and one that shorter and longer
    trainings share.

    They are the same for any number of trials, and whatever is asked about output.

    Parameters
    ----------
    data_digest : str
        `Dataset.digest`.
    recorders : mapping of str to str
        The texts of the user's own recorders, by name: of ``file.py:function`` text and
        function count.
    start : str
        What trials start from: the SHA-256 of a file, or the run-id of other trials.
    """
    facts = {
        name: value for name, value in settings.row().items() if name not in _BY_CONTENT
    }
    if facts["early_stopping_metric"] is None:  # as before there was one
        del facts["early_stopping_metric"]
    rate = str(settings.learning_rate).replace(",", "").replace(" ", "-")
    facts["records"] = [
        (name.rpartition(":")[2], recorders[name]) if name in recorders else name
        for name in settings.record.names
    ]
    words = (
        f"{settings.model.kind}-{settings.model.hidden}",
        settings.offsets,
        settings.sampler_name,
    )
    plain = (
        re.sub(r"[^A-Za-z0-9.-]", "", word.replace("^", "-").replace("_", "-"))
        for word in words
    )
    readable = "_".join((*plain, rate))[:_READABLE]
    own, shared = (
        _hash_of(it, start, base_seed, data_digest)
        for it in (facts, facts | _NO_LENGTH)
    )
    return f"{readable}_{own}", f"{readable}_{shared}"


_NO_LENGTH = {"updates": None, "epochs": None}


def pretraining_id(facts: Mapping[str, Any], base_seed: int, data_digest: str) -> str:
    """Return the name of the folder of pre-trained layers, from everything that decides
    their values.
    """
    return f"{facts['model'][:_READABLE]}_{_hash_of(facts, base_seed, data_digest)}"


def _hash_of(*facts: Any) -> str:
    return hashlib.sha256(
        json.dumps([*facts, KERNEL_VERSION], sort_keys=True).encode()
    ).hexdigest()[:10]

"""Run-ids: a readable prefix and a hash of everything that changes the numbers.

Names are labels: of data sets, of files, and of the experiment that trials start from.
What they hold counts. A field with its default is not part of a hash, so that a new
field with a neutral default renames no run.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from cbm_cli.grid.settings import Evaluate, Settings
from cbm_cli.kernels import KERNEL_VERSION

# Characters of the readable part; names of folders have at most 255 bytes.
_READABLE = 240
_HASH = 10  # digits of a hash in a name
# Fields whose content is part of the identity instead of their text
_LABELS: Any = {
    "data": True,
    "start_from": {"path", "experiment"},
    "record": {"what"},
}
_LENGTH = ("updates", "epochs")


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

    Examples
    --------
    >>> settings = Settings(
    ...     data={"name": "bars-and-stripes", "size": 2},
    ...     model={"kind": "rbm", "hidden": 4},
    ...     offsets="dd^b_s",
    ...     sampler="PCD-1",
    ...     learning_rate=0.1,
    ...     updates=100,
    ... )
    >>> run_ids(settings, base_seed=1, data_digest="")[0][:-10]
    'rbm-4_dd-b-s_PCD-1_0.1_'
    """
    facts: dict[str, Any] = {
        "settings": changes_of(settings),
        "seed": base_seed,
        "data": data_digest,
    }
    records: list[str | list[str]] = [*settings.record.names]
    for place, name in enumerate(settings.record.names):
        if name in recorders:
            records[place] = [name.rpartition(":")[2], recorders[name]]
    if records:
        facts["records"] = records
    if start:
        facts["start"] = start
    without_length = dict(facts["settings"])
    for field in _LENGTH:
        without_length.pop(field, None)
    prefix = _readable(settings)
    shared = _hash_of(facts | {"settings": without_length})
    return f"{prefix}_{_hash_of(facts)}", f"{prefix}_{shared}"


def changes_of(settings: Settings) -> dict[str, Any]:
    """Return the fields of settings that have no default or another value, as a grid
    gives them.

    Names of data, files, experiments and recorders are left out. The interval of
    evaluations is always there, since its default depends on the unit of the length.
    """
    bare = settings.model_copy(update={"evaluate": Evaluate()})
    evaluate: dict[str, Any] = {"every": settings.every}
    if settings.evaluation == bare.evaluation:
        evaluate["method"] = None
    if settings.temperatures == bare.temperatures:
        evaluate["temperatures"] = None
    plain = settings.evaluate.model_copy(update=evaluate)
    return settings.model_copy(update={"evaluate": plain}).model_dump(
        mode="json", exclude=_LABELS, exclude_defaults=True
    )


def _readable(settings: Settings) -> str:
    """Return the part of a run-id that people read."""
    machine = f"{settings.model.kind}-{settings.model.hidden}"
    words = []
    for word in (machine, settings.offsets, settings.sampler_name):
        dashed = word.replace("^", "-").replace("_", "-")
        words.append(re.sub(r"[^A-Za-z0-9.-]", "", dashed))
    words.append(str(settings.learning_rate).replace(",", "").replace(" ", "-"))
    return "_".join(words)[:_READABLE]


def pretraining_id(facts: Mapping[str, Any], base_seed: int, data_digest: str) -> str:
    """Return the name of the folder of pre-trained layers, from everything that decides
    their values.
    """
    digest = _hash_of({"layers": facts, "seed": base_seed, "data": data_digest})
    return f"{facts['model'][:_READABLE]}_{digest}"


def _hash_of(facts: Mapping[str, Any]) -> str:
    text = json.dumps({**facts, "kernel": KERNEL_VERSION}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH]

"""Run-ids: a readable prefix and a hash of everything that changes the numbers."""

import hashlib
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cbm_cli.kernels import KERNEL_VERSION

if TYPE_CHECKING:
    from cbm_cli.grid.settings import Settings
_LONGEST = 240  # characters of the readable part; names of folders have at most 255 bytes


def run_id(
    settings: "Settings", base_seed: int, data_digest: str, sources: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return the name of the folder of a cell's trials.

    The hash covers settings, seed, data, KERNEL_VERSION and the ``sources`` of a user's own recorders, but
    neither the number of trials nor anything about output: raising 10 trials to 25 runs 15.
    """
    model, sampler = settings.model, settings.sampler_name
    words = [settings.data.title, f"{model.kind}-{model.size}", settings.offsets, sampler]
    prefix = "_".join(
        re.sub(r"[^A-Za-z0-9.-]", "", word.replace("^", "-").replace("_", "-")) for word in words
    )
    facts = [settings.model_dump(mode="json"), settings.every, base_seed, data_digest, KERNEL_VERSION]
    readable = f"{prefix}_{settings.learning_rate.slug}"[:_LONGEST]
    return f"{readable}_{_digest([*facts, *sources.values()])}"


def pretraining_id(facts: Mapping[str, Any], base_seed: int, data_digest: str) -> str:
    """Return the name of the folder of pre-trained layers, from everything that decides their values."""
    return f"{facts['model'][:_LONGEST]}_{_digest([facts, base_seed, data_digest, KERNEL_VERSION])}"


def _digest(facts: list) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:10]

"""What runs on a Dask cluster: packets of trials."""

import pickle
import time
import zlib
from functools import cache
from typing import Any

from distributed import get_worker

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.execution import worker
from cbm_cli.machines.threads import one_thread

_stopped: set[str] = set()  # runs that this worker was asked to stop


def work(message: bytes, token: str, environment: str, cores: int, *datasets: Dataset) -> list[Any]:
    """Run a packet of trials on some cores; return how many seconds that took, then each key and its result.

    Reports go to the coordinator as events of the topic ``token``.
    Raises RuntimeError on a worker whose versions are not those of the ``environment``.
    """
    if worker.environment() != environment:
        raise RuntimeError(f"this worker has {worker.environment()}")
    began = time.monotonic()
    _one_thread_for_good()
    own = get_worker()

    def tell(*news: object) -> None:
        if news:
            own.log_event(token, news)

    sets = {data.digest: data for data in datasets}
    results = [*worker.run_packet(pickle.loads(message), sets, tell, lambda: token in _stopped, cores)]
    return [time.monotonic() - began, *results]


@cache
def _one_thread_for_good() -> None:
    """Of several trials in this process the first to end would give the others more threads."""
    one_thread().__enter__()


def unpacked(content: bytes) -> Dataset:
    """Return a data set that was sent as compressed bytes."""
    return pickle.loads(zlib.decompress(content))


def stop(token: str) -> None:
    """Stop the trials of a run on this worker as soon as possible."""
    _stopped.add(token)

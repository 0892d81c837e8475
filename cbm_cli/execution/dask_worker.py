"""What runs on a worker of a Dask cluster."""

import pickle
import signal
import threading
import zlib
from functools import cache

from distributed import Worker, WorkerPlugin, get_worker

from cbm_cli.datasets.dataset import Dataset
from cbm_cli.execution.worker import run_packet
from cbm_cli.machines.threads import one_thread

_GRACE = 5.0  # seconds that trials have to return when their worker ends
_stopped: set[str] = set()  # runs that this worker was asked to stop
_running: list[int] = []  # packets that this worker runs
_preparing = threading.Lock()
_leaving = threading.Event()  # this worker ends
_datasets: dict[str, Dataset] = {}


def work(message: bytes, token: str, number: int) -> bytes:
    """Run the packet ``number`` of a run; return pickled pairs of keys and results, nothing without the data.

    Reports go to the coordinator as events of the topic ``token``, after the packet's number. When the worker
    ends, so do the results: nobody can fetch them from the worker any more.
    """
    own = get_worker()
    with _preparing:  # two threads may come at once
        _prepare(own)
    tasks, new = pickle.loads(message)
    _datasets.update({digest: pickle.loads(zlib.decompress(data)) for digest, data in new.items()})
    if any(digest not in _datasets for _, _, digest, *_ in tasks):
        return b""
    _running.append(number)
    try:
        tell = lambda *news: own.log_event(token, (number, *news))  # noqa: E731
        stopped = lambda: token in _stopped or _leaving.is_set()  # noqa: E731
        answer = pickle.dumps([*run_packet(tasks, _datasets, tell, stopped)])
        if _leaving.is_set():
            tell(answer)
    finally:
        _running.remove(number)
    return answer


def stop(token: str) -> None:
    """Stop the trials of a run on this worker as soon as possible."""
    _stopped.add(token)


@cache
def _prepare(own: Worker) -> None:
    """Make this process compute as others do, and let its trials return before it ends."""
    import asyncio

    # For good: of several trials in this process the first to end would give the others more threads.
    one_thread().__enter__()
    added = own.plugin_add(_Farewell(), name="cbm")
    asyncio.run_coroutine_threadsafe(added, own.loop.asyncio_loop).result(10)  # type: ignore[attr-defined]


class _Farewell(WorkerPlugin):
    """Waits for the trials of a worker that ends, which SIGTERM makes it do."""

    def setup(self, worker: Worker) -> None:
        def end(number: int, frame: object) -> None:
            # A nanny that got the signal, too, is not there to be told; another one starts a new worker.
            worker.loop.add_callback_from_signal(worker.close, nanny=False, reason="SIGTERM")

        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, end)

    async def teardown(self, worker: Worker) -> None:
        import asyncio

        _leaving.set()
        for _ in range(int(_GRACE / 0.05)):
            if not _running:
                break
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.05)  # their last events are on their way

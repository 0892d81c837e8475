"""A scheduler and workers of Dask that listen at their TLS ports only, and serve no web pages."""

import logging
import warnings
from typing import Any

from distributed import Scheduler, Worker
from distributed.http.routing import RoutingApplication
from tornado.httpserver import HTTPServer


class _Silent:
    """A server of Dask without the web server that the others start, even without a dashboard."""

    def start_http_server(self, routes: list, *arguments: Any, **keywords: Any) -> None:
        """Make a web server that does not listen."""
        self.http_application = RoutingApplication([])
        self.http_server = HTTPServer(self.http_application)


class SilentScheduler(_Silent, Scheduler):
    """The scheduler of a run on SLURM."""


class SilentWorker(_Silent, Worker):
    """A worker in a job of a run on SLURM."""


def silence_dask() -> None:
    """Keep Dask's own messages from the terminal; what matters to the user is said in other words."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]
    for name in (*names, "distributed", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module="distributed")

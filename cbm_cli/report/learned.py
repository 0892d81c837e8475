"""Pictures of what trained machines have learned, and of data: filters, activities, samples, rows.

This is the one module of the room that reads machines and data sets, since they are what it draws.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from cbm_cli.datasets.catalogue import load, load_source
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.datasets.spec import make_spec
from cbm_cli.errors import CbmError
from cbm_cli.machines.files import Layered, flatten, read_machine
from cbm_cli.machines.representations import BALANCED, chosen as chosen_units, filters, has_probabilities, mean_activity, represent
from cbm_cli.machines.samples import draw, parse_sampler
from cbm_cli.report.chosen import Chosen, Options, choose
from cbm_cli.report.panels import Drawing, Panel
from cbm_cli.report.pictures import normalised, parse_shape, tile
from cbm_cli.report.style import BOUND, looks_of, named, plain_axes
from cbm_cli.results import Results
from cbm_cli.statistics.layout import CellSettings, key_of
from cbm_cli.text import count

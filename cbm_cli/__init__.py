"""Train and compare centered binary Boltzmann machines from YAML experiment grids."""

__version__ = "0.2.0"

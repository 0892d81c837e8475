"""Trials to workers and back: in this process, on local processes, or on a Dask
cluster.
"""

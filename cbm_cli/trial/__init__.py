"""A trial: from settings and seed to its first state, through the training loop, to its
outcome.
"""

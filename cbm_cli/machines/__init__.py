"""What one can ask of a machine file: likelihood, gradients, samples, features; no
trial is needed.
"""

"""Data sets, as read-only rows of bytes: toys generated, published ones and a user's
own read from files.
"""

"""One launch of a server under one arm: start, prove, load, profile, stop, and what it all left.

``launch`` is the entry. Every process started here runs under ``keeper.py``, which lets nothing survive.
"""

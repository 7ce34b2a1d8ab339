"""Great Expectations over every table before it is stored, in a process of its own.

``run`` is the caller's side and never imports Great Expectations, which takes seconds to load; ``suite`` is
the other side. What the two exchange is ``exchange``.
"""

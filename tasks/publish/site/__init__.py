"""The pages of the results site as pure functions: tables and a request in; HTML, JSON or CSV out.

One page answers one question; its data stands at the same address with ``.json`` or ``.csv`` behind the path.
``static/htmx.min.js`` is htmx 2.0.11 (0BSD), unchanged.
"""

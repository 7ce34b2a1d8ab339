"""Agents: the worker of one device of this host, what it leaves behind, and the build that it watches."""

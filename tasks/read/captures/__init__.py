"""Captures of tilewatch read into contract tables."""

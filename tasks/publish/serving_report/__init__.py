"""The report of experiment E: phases, gates, launches."""

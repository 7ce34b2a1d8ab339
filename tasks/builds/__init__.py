"""The build under test by what really runs: spellings of versions, operator packages, mixes and changes."""

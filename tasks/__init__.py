"""The work, one package a stage, in the order of the data: plan, measure, collect, read … publish."""

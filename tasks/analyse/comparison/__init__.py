"""Two sides compared point by point: pairing, decision, control, confirmation."""

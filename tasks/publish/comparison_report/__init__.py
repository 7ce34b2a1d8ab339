"""What only the page of a comparison shows: the verdicts, and how tiling changed between the sides."""

"""What a comparison of two profiles shows: ten lines on a terminal, a page, a document for programs."""

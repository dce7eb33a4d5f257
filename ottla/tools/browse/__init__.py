"""`ottla topic browse`: read topics on a terminal, with the keyboard."""

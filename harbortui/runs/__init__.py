"""The run directory: layout, events, journals, and the index that is read from them."""

"""The index: the read model of a run, derived from its journals by one process."""

"""The commands, one module per family; `app` finds the one that is asked for."""

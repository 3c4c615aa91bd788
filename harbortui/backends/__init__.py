"""Backends turn a config into a plan: a list of processes for the supervisor."""

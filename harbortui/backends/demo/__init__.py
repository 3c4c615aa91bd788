"""The demo: a plan whose processes only pretend to train, and say so in every event."""

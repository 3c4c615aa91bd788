"""The supervisor: plans, keepers, the daemon, verbs and the control socket."""

"""The config that users write: one TOML file, one typed `RunConfig`."""

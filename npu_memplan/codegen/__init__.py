"""A planned module to the C sources of an artifact. See `sources.write_sources`."""

"""What tests and benchmarks share: models to build, programs to plan, streams by hand, oracles, a browser."""

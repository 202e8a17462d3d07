"""A pool that is too small: what could be asked for instead (`knobs`), and all of it compared (`trials`)."""

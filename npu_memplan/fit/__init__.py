"""A pool that is too small: what could be asked for instead (`levers`), and all of it compared (`trials`)."""

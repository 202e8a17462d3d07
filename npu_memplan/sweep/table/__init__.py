"""What a sweep is shown as: rows and fronts, what changed, files for other programs, the page."""

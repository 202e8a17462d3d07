"""This Python process: its streams and signals, and modules of it that can be called."""

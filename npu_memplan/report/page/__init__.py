"""Pages of one file each: report.html, compare.html, and the memory map as SVG.

Invariant: a page holds its data, styles and scripts (`assets`) and loads nothing from a server.
"""

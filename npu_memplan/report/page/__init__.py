"""Pages of one file each: report.html, and pages of plots and tables (`tables`).

Invariant: a page holds its data, styles and scripts (`assets`) and loads nothing from a server.
"""

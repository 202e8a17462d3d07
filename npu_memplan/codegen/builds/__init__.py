"""What the builds and drivers of users' firmware need beside the C.

Invariant: nothing here changes what a program computes.
"""

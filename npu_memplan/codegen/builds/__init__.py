"""What the builds and drivers of users' firmware need in addition to the C.

Invariant: nothing here changes what a program computes.
"""

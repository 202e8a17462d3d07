"""What is compiled where there is a choice: which constants travel when, whose operations, in stripes of how many rows.

Invariant: every choice is weighed by the estimate of time of the planned stream and by the bytes of a verified plan;
what was asked for stays possible, and nothing here changes a value that is computed.
"""

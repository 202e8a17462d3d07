"""A pool that is too small: all that could be requested instead, compared (`trials`), and
one model on many boards (`boards`)."""

"""Evidence by others: a fixed set of programs, run where its user can, as one record that can be sent."""

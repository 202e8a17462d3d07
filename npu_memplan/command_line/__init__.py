"""What all commands share: options in groups, names that the shell completes, how much is printed."""

"""The `ottla` command and what it does beside serving: reading, checking and adopting logs."""

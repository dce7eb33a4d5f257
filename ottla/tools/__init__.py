"""The `ottla` command, except for serving: administration, and reading and checking logs."""

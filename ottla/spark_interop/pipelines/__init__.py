"""Pipelines: functions and the command `ottla pipeline`; each goes on where it was stopped."""

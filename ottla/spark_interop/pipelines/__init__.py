"""Pipelines: functions and the command `ottla pipeline`; each continues where it was stopped."""

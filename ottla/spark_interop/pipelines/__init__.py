"""Pipelines, as functions and as `ottla pipeline`. Each continues where it was stopped."""

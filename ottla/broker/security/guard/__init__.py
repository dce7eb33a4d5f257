"""The access decisions of APIs, made before the handler runs; only with an authorizer."""

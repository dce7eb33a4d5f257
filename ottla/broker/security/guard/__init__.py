"""What each API asks the authorizer before its handler runs; only where there is an authorizer."""

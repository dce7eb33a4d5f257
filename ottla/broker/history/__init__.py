"""Why a group stands still, and why a replica is out of sync."""

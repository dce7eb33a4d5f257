"""Why a group makes no progress, and why a replica is out of sync."""

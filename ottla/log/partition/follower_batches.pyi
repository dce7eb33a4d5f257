"""A follower checks the batches of its leader, and divides them among its segments."""

"""What differs if the client of a Fetch is a replica."""

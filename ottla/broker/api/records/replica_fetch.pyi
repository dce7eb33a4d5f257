"""What differs where the client of a Fetch is a replica."""

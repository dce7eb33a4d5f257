"""A follower's Fetch request; only the fetcher uses it, from Cython."""

class FetchedPartition:
    pass

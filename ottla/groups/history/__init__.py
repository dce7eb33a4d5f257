"""What has happened in groups, and why one of them makes no progress."""

"""The events of groups, and the reasons why a group makes no progress."""

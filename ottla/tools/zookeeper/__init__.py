"""Runs ZooKeeper for a cluster on one machine: jars from Maven, and one Java process."""

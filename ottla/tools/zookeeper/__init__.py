"""ZooKeeper for a cluster on one machine: jars from Maven, a process of Java."""

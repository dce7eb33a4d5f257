"""Several brokers and their ZooKeeper in one world."""

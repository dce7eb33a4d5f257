"""What a follower does with the batches that its leader sends, before it writes them."""

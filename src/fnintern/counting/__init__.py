"""What became of calls, by operation; and which lines miss again and again."""

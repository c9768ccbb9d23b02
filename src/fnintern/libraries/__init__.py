"""What is known of each library: whose code it is, and what its functions read (S1)."""

"""Replacing names of installed libraries, and undoing it. One module for each library."""

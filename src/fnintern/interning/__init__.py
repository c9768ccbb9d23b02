"""The decorator: wrapper factories memoized by object and by value (laws I1 to I6, S1)."""

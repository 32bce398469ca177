"""The layers of compaction: each a pure function."""

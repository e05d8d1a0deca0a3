//! An empty library. The loom tests of this package are in `tests/`.

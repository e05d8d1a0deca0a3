//! An empty library. The models are in `tests/`.

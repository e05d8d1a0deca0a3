//! Holds nothing: the models are in `tests/`.

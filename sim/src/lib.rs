//! An engine model of vLLM.

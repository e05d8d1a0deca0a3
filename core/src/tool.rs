//! Tools: named non-model resources, each with a cap of its own, so that a slow one never costs a model slot.
use std::sync::Arc;
/// What one task holds. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Chain(#[allow(dead_code)] Arc<()>);

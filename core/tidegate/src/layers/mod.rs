//! The tower layers, one module each. [`crate::client`] composes them.

pub(crate) mod admission;
pub(crate) mod ask_usage;
pub(crate) mod count;
pub(crate) mod deadline;
pub(crate) mod fallback;
#[cfg(feature = "pool")]
mod hedge;
pub(crate) mod middleware;
pub(crate) mod observe;
pub(crate) mod retry;
#[cfg(feature = "pool")]
mod route_to_replica;
pub(crate) mod stream;

use bytes::Bytes;
use http_body::{Frame, SizeHint};

#[cfg(not(feature = "pool"))]
pub(crate) use self::no_pool::{HedgeLayer, RouteToReplicaLayer};
#[cfg(feature = "pool")]
pub(crate) use self::{hedge::HedgeLayer, route_to_replica::RouteToReplicaLayer};

/// Returns about how many bytes of memory `frames` frames with `data` bytes of data take. Frames of
/// a byte each take a hundred times as much as their data.
fn memory_of(data: usize, frames: usize) -> usize {
    data + frames * size_of::<Frame<Bytes>>()
}

/// Returns the size hint, in bytes, of a body that consists of `read` bytes followed by a body with
/// the size hint `rest`.
fn size_hint_after(read: u64, rest: &SizeHint) -> SizeHint {
    let mut hint = SizeHint::new();
    hint.set_lower(read + rest.lower());
    if let Some(upper) = rest.upper() {
        hint.set_upper(read + upper);
    }
    hint
}

/// Replacements for the layers of pools in a build without the feature `pool`. Each returns the
/// inner service unchanged.
#[cfg(not(feature = "pool"))]
mod no_pool {
    macro_rules! passes_unchanged {
        ($($layer:ident),*) => {$(
            pub(crate) struct $layer;

            impl<S> tower::Layer<S> for $layer {
                type Service = S;

                fn layer(&self, inner: S) -> S {
                    inner
                }
            }
        )*};
    }
    passes_unchanged!(HedgeLayer, RouteToReplicaLayer);
}

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
#[cfg(feature = "pool")]
mod pool;
pub(crate) mod retry;
pub(crate) mod stream;

#[cfg(not(feature = "pool"))]
pub(crate) use self::no_pool::{HedgeLayer, PoolLayer};
#[cfg(feature = "pool")]
pub(crate) use self::{hedge::HedgeLayer, pool::PoolLayer};

/// The layers of pools in a build without the feature `pool`. Requests pass unchanged.
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
    passes_unchanged!(HedgeLayer, PoolLayer);
}

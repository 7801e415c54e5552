//! Checks the sizes of the futures of layers.
//!
//! Futures of layers are nested, and each layer moves the futures of the layers inside it. An
//! unnecessary word in a future is therefore copied by all outer layers, with every call. To keep
//! futures small, a layer stores the data that most calls need in place, and boxes rare or large
//! data.

use std::{
    convert::Infallible,
    future::{Ready, ready},
};

use rmcp::model::CallToolResult;
use tower::service_fn;

use super::*;
use crate::composite::FlowPolicy;

/// The size of the future of a server that replies immediately.
const LEAF: usize = size_of::<Ready<Result<Reply, Infallible>>>();
const WORD: usize = size_of::<usize>();

/// Returns the number of words by which the future of a layer is larger than that of the inner
/// service.
fn words<L>(layer: &L) -> usize
where
    L: Layer<Leaf, Service: Service<Request>>,
{
    (size_of_future(&layer.layer(leaf())) - LEAF) / WORD
}

fn size_of_future<S: Service<Request>>(_: &S) -> usize {
    size_of::<S::Future>()
}

type Leaf = tower::util::ServiceFn<fn(Request) -> Ready<Result<Reply, Infallible>>>;

fn leaf() -> Leaf {
    service_fn(|_| ready(Ok(CallToolResult::success(Vec::new()).into())))
}

#[test]
fn layer_future_adds_few_words() {
    let layers = [
        ("limit", words(&LimitLayer::new()), 5),
        ("advertise", words(&AdvertiseLayer::new()), 4),
        ("truncate", words(&TruncateLayer::new()), 2),
        ("flow", words(&FlowLayer::new(FlowPolicy::new())), 2),
        ("composite", words(&CompositeLayer::default()), 2),
        ("alias", words(&AliasLayer::new()), 4),
        ("filter", words(&FilterLayer::new()), 4),
        ("validate", words(&ValidateLayer::new()), 4),
        ("redact", words(&RedactLayer::new()), 5),
        ("budget", words(&BudgetLayer::new()), 7),
        #[cfg(feature = "cache")]
        ("cache", words(&CacheLayer::new()), 3),
    ];
    for (layer, words, most) in layers {
        assert!(words <= most, "{layer} has {words} words, expected at most {most}");
    }
}

#[test]
fn stack_future_adds_few_words() {
    let words = words(&StackLayer::new());
    assert!(words <= 32, "{words} words, expected at most 32");
}

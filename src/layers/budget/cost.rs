//! The cost of a tool call: an estimate before the call, and the actual cost in its result.

use std::{fmt, sync::Arc};

use rmcp::model::CallToolResult;
use serde_json::Value;

use crate::{json_pointer, pattern::Selection};

/// A function that reads the actual cost of a tool call from its result. Returns `None` if the
/// result contains no cost.
type Actual = Arc<dyn Fn(&CallToolResult) -> Option<u64> + Send + Sync>;

/// The cost of a call to the selected tools, in a unit of your choice, such as cents, tokens or
/// rows. A [`BudgetLayer`](super::BudgetLayer) charges costs to budgets with the unit
/// [`Unit::Cost`](super::Unit::Cost), and counts them toward the cost limits of composite runs.
///
/// ```
/// use mcp_composite::{budget::Cost, pattern::Selection};
///
/// // 2000 tokens, unless the tool says how many there were.
/// let models = Selection::default().allow(["ask_*"])?;
/// let tokens = Cost::new(models, 2000).actual_at("/_meta/usage/total_tokens");
/// # Ok::<(), mcp_composite::pattern::PatternError>(())
/// ```
#[derive(Clone)]
pub struct Cost {
    pub(super) tools: Selection,
    known: Known,
}

/// The cost of a call to a tool: the estimate, and the function that reads the actual cost from the
/// result. `None` stands for an estimate of one unit without a function.
///
/// The type is as small as a pointer, because it is stored in the future of every charged call.
#[derive(Clone, Default)]
pub(super) struct Price(Option<Arc<Known>>);

#[derive(Clone)]
struct Known {
    estimate: u64,
    actual: Option<Actual>,
}

/// The location of the actual cost in a tool result.
enum CostLocation {
    /// The JSON Pointer to the cost within the structured content.
    Structured(String),
    /// The name of a member of `_meta`, and the JSON Pointer to the cost within this member.
    Meta(String, String),
    /// The JSON Pointer to the cost within the whole result. To follow it, the result must be
    /// converted to JSON.
    Any(String),
}

// === impl Cost ===

impl Cost {
    /// Creates a cost of `units` for each call to the tools that `tools` selects.
    ///
    /// If `units` is zero and no function reads the [actual](Self::actual) cost from results, calls
    /// to the selected tools are free. Free calls are not charged to budgets with the unit
    /// [`Unit::Cost`](super::Unit::Cost).
    #[must_use]
    pub const fn new(tools: Selection, units: u64) -> Self {
        Self { tools, known: Known { estimate: units, actual: None } }
    }

    /// Sets the function that reads the actual cost of a tool call from the tool result. If the
    /// function returns `None`, the layer charges the estimate that was passed to
    /// [`new`](Self::new).
    #[must_use]
    pub fn actual<F>(mut self, actual: F) -> Self
    where
        F: Fn(&CallToolResult) -> Option<u64> + Send + Sync + 'static,
    {
        self.known.actual = Some(Arc::new(actual));
        self
    }

    /// Reads the actual cost of a tool call from the tool result, at a JSON Pointer ([RFC 6901])
    /// such as `/_meta/usage/total`. If the result does not contain a non-negative integer at this
    /// position, the layer charges the estimate that was passed to [`new`](Self::new).
    ///
    /// [RFC 6901]: https://www.rfc-editor.org/rfc/rfc6901
    #[must_use]
    pub fn actual_at(self, pointer: &str) -> Self {
        let location = CostLocation::of(pointer);
        self.actual(move |result| location.amount(result))
    }

    /// Returns the price of each call to the selected tools.
    pub(super) fn price(&self) -> Price {
        Price(Some(Arc::new(self.known.clone())))
    }
}

impl fmt::Debug for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cost")
            .field("tools", &self.tools)
            .field("estimate", &self.known.estimate)
            .finish_non_exhaustive()
    }
}

// === impl Price ===

impl Price {
    /// Returns the estimated cost of a call, which the layer reserves before the call.
    pub(super) fn estimate(&self) -> u64 {
        self.0.as_ref().map_or(1, |known| known.estimate)
    }

    /// Returns `true` if calls are free: the estimated cost is zero, and results do not report an
    /// actual cost.
    pub(super) fn is_nothing(&self) -> bool {
        self.0.as_ref().is_some_and(|known| known.estimate == 0 && known.actual.is_none())
    }

    /// Returns the actual cost that the result reports. Returns the estimate if the result does not
    /// report a cost, or if there is no result.
    pub(super) fn actual(&self, result: Option<&CallToolResult>) -> u64 {
        let actual = self.0.as_ref().and_then(|known| known.actual.as_ref());
        let actual = actual.zip(result).and_then(|(actual, result)| actual(result));
        actual.unwrap_or_else(|| self.estimate())
    }
}

// === impl CostLocation ===

impl CostLocation {
    /// Parses `pointer`, the JSON Pointer to the cost in a tool result.
    ///
    /// Servers usually report costs in `structuredContent` or `_meta`, which are already JSON
    /// values. For a pointer to any other part, the whole result must be converted to JSON.
    fn of(pointer: &str) -> Self {
        let within = |part: &str| {
            let rest = pointer.strip_prefix(part)?;
            (rest.is_empty() || rest.starts_with('/')).then_some(rest)
        };
        if let Some(rest) = within("/structuredContent") {
            return Self::Structured(rest.to_owned());
        }
        match within("/_meta").and_then(|rest| rest.strip_prefix('/')) {
            Some(rest) => {
                let end = rest.find('/').unwrap_or(rest.len());
                let (key, rest) = rest.split_at(end);
                Self::Meta(json_pointer::unescape(key).into_owned(), rest.to_owned())
            }
            None => Self::Any(pointer.to_owned()),
        }
    }

    fn amount(&self, result: &CallToolResult) -> Option<u64> {
        match self {
            Self::Structured(rest) => result.structured_content.as_ref()?.pointer(rest)?.as_u64(),
            Self::Meta(key, rest) => result.meta.as_ref()?.get(key)?.pointer(rest)?.as_u64(),
            Self::Any(pointer) => {
                serde_json::to_value(result).ok()?.pointer(pointer).and_then(Value::as_u64)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{ContentBlock, MetaObject};
    use serde_json::json;

    use super::*;

    #[test]
    fn actual_cost_is_the_integer_at_the_pointer() {
        let mut result = CallToolResult::success(vec![ContentBlock::text("done")]);
        let meta = json!({ "usage": { "total": 7 }, "a/b~c": 8, "cents": -1, "share": 1.5 });
        result.meta = meta.as_object().cloned().map(MetaObject);
        result.structured_content = Some(json!({ "rows": [3, "4", null] }));
        let cases = [
            ("/_meta/usage/total", Some(7)),
            ("/_meta/a~1b~0c", Some(8)),
            ("/_meta/usage", None),
            ("/_meta", None),
            ("/_meta/cents", None),
            ("/_meta/share", None),
            ("/_metadata", None),
            ("/structuredContent/rows/0", Some(3)),
            ("/structuredContent/rows/1", None),
            ("/structuredContent/rows/2", None),
            ("/structuredContent/rows/3", None),
            ("/structuredContentless", None),
            ("/content/0/text", None),
            ("_meta/usage/total", None),
            ("", None),
        ];
        for (pointer, expected) in cases {
            assert_eq!(CostLocation::of(pointer).amount(&result), expected, "{pointer}");
        }
    }

    #[test]
    fn pointer_resolves_metadata_of_a_content_block() {
        let mut block = ContentBlock::text("done");
        if let ContentBlock::Text(text) = &mut block {
            text.meta = json!({ "cost": 5 }).as_object().cloned().map(MetaObject);
        }
        let result = CallToolResult::success(vec![block]);
        assert_eq!(CostLocation::of("/content/0/_meta/cost").amount(&result), Some(5));
    }

    #[test]
    fn missing_actual_cost_defaults_to_the_reserved_cost() {
        let price = Cost::new(Selection::default(), 5).actual_at("/_meta/cost").price();
        assert_eq!(price.actual(Some(&CallToolResult::success(Vec::new()))), 5);
        assert_eq!(price.actual(None), 5);
    }
}

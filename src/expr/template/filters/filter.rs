//! The filters that templates can use, and the types of their inputs.

/// A filter that templates can use.
pub(in crate::expr::template) struct Filter {
    pub(in crate::expr::template) name: &'static str,
    pub(super) takes: Takes,
}

/// The input type of a filter.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Takes {
    Anything,
    /// Any value, or none.
    Nothing,
    Text,
    List,
    TextOrList,
    Map,
    Number,
    Scalar,
}

const fn filter(name: &'static str, takes: Takes) -> Filter {
    Filter { name, takes }
}

/// All filters.
pub(in crate::expr::template) static FILTERS: [Filter; 46] = [
    filter("abs", Takes::Number),
    filter("batch", Takes::List),
    filter("bool", Takes::Anything),
    filter("capitalize", Takes::Text),
    filter("chain", Takes::List),
    filter("count", Takes::Anything),
    filter("d", Takes::Nothing),
    filter("default", Takes::Nothing),
    filter("dictsort", Takes::Map),
    filter("first", Takes::TextOrList),
    filter("float", Takes::Scalar),
    filter("fromjson", Takes::Text),
    filter("groupby", Takes::List),
    filter("indent", Takes::Text),
    filter("int", Takes::Scalar),
    filter("items", Takes::Map),
    filter("join", Takes::List),
    filter("last", Takes::TextOrList),
    filter("length", Takes::Anything),
    filter("lines", Takes::Text),
    filter("list", Takes::List),
    filter("lower", Takes::Text),
    filter("map", Takes::List),
    filter("max", Takes::List),
    filter("min", Takes::List),
    filter("quote", Takes::Text),
    filter("reject", Takes::List),
    filter("rejectattr", Takes::List),
    filter("replace", Takes::Text),
    filter("reverse", Takes::TextOrList),
    filter("round", Takes::Number),
    filter("select", Takes::List),
    filter("selectattr", Takes::List),
    filter("sort", Takes::List),
    filter("split", Takes::Text),
    filter("string", Takes::Anything),
    filter("sum", Takes::List),
    filter("title", Takes::Text),
    filter("tojson", Takes::Anything),
    filter("trim", Takes::Text),
    filter("unique", Takes::List),
    filter("upper", Takes::Text),
    filter("urlencode", Takes::Scalar),
    filter("zip", Takes::List),
    filter("keys", Takes::Map),
    filter("values", Takes::Map),
];

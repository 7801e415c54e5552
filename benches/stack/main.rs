//! The overhead of the layers: requests that pass through each of them alone and through all of
//! them, without rules and with many, compared with the bare service.
//!
//! ```sh
//! cargo bench -p benches --bench stack                  # everything, some two minutes
//! cargo bench -p benches --bench stack -- empty         # what has this in its name
//! cargo bench -p benches --bench stack -- allocations   # no times, only allocations
//! ```
//!
//! The table compares cases of this run, and within each of its rounds. Compare
//! nothing else: the same code takes half as long again on a machine that is busy
//! or warm. Allocations do not vary.
//!
//! Reasons why an idle layer is cheap:
//!
//! - The futures of layers are nested, and the fields of one are moved by all above it. So a layer
//!   keeps only the parts it needs of a reply that it awaits, and boxes rare or large ones. If only
//!   one state holds the inner future in place, the others share its tag and take no space. The
//!   unit tests of `stack` assert the sizes of the futures.
//! - An `Arc` that is cloned for each request is two locked instructions for each layer.
//! - A layer without rules returns `ResponseFuture { .. self.inner.call(request) .. }` directly,
//!   with nothing left to drop after the call, so that the compiler lets the inner service write
//!   its future in place. Each copy costs more than its bytes: it reads recently written data in
//!   other units.
//! - The check for an idle layer is `#[inline]`, as it is called from another crate; the work of an
//!   active one is not.

#[path = "../fan_out/counting.rs"]
mod counting;
mod leaf;
mod measure;

use mcp_composite::{
    advertise::{AdvertiseLayer, Mode},
    alias::{AliasLayer, ArgumentAlias, ToolAlias},
    budget::BudgetLayer,
    composite::{CompositeLayer, CompositeTool, FlowLabel, FlowPolicy},
    filter::FilterLayer,
    flow::{FlowLayer, SessionMode},
    limit::LimitLayer,
    lock::{Lock, LockLayer},
    message::Request,
    pattern::Selection,
    redact::RedactLayer,
    reload::Reload,
    stack::{BackendLayer, StackLayer},
    trace::TraceLayer,
    truncate::TruncateLayer,
    validate::{SchemaMode, ValidateLayer},
};
use rmcp::model::CallToolRequestParams;
use serde_json::{Value, json};
use tower::{Layer, Service};

use self::{leaf::Leaf, measure::Group};

const KIB_64: usize = 64 << 10;
/// The number of tools of the service that is listed and searched.
const MANY: usize = 1_000;

fn main() {
    measure::run(&[empty(), rules(), list(), search(), lock(), names(), sizes()]);
}

/// Calls through layers without rules.
fn empty() -> Group {
    let leaf = Leaf::new(100);
    let request = call(&leaf.name(5), small_arguments());
    Group::new("empty")
        .case("leaf", &leaf, &request)
        .case("limit", &LimitLayer::new().layer(leaf.clone()), &request)
        .against("leaf")
        .case("trace", &TraceLayer::new().layer(leaf.clone()), &request)
        .against("leaf")
        .case("advertise", &AdvertiseLayer::new().layer(leaf.clone()), &request)
        .against("leaf")
        .case("truncate", &TruncateLayer::new().layer(leaf.clone()), &request)
        .against("leaf")
        .case("redact", &RedactLayer::new().layer(leaf.clone()), &request)
        .against("leaf")
        .case("budget", &BudgetLayer::new().layer(leaf.clone()), &request)
        .against("leaf")
        .case("flow", &FlowLayer::default().layer(leaf.clone()), &request)
        .against("leaf")
        .case("composite", &CompositeLayer::default().layer(leaf.clone()), &request)
        .against("leaf")
        .case("alias", &AliasLayer::new().layer(leaf.clone()), &request)
        .against("leaf")
        .case("filter", &FilterLayer::new().layer(leaf.clone()), &request)
        .against("leaf")
        .case("validate", &ValidateLayer::new().layer(leaf.clone()), &request)
        .against("leaf")
        .case("reload", &Reload::new(leaf.clone()).0, &request)
        .against("leaf")
        .case("backend", &BackendLayer::new().layer(leaf.clone()), &request)
        .against("leaf")
        .case("stack", &StackLayer::new().layer(leaf.clone()), &request)
        .against("leaf")
}

/// Calls through layers with rules, all of which allow them.
fn rules() -> Group {
    let leaf = Leaf::new(100);
    let request = call(&leaf.name(5), small_arguments());
    let renamed = call("alias_0", small_arguments());
    let labeled = call(&leaf.name(6), small_arguments());
    let with_argument = call("alias_1", json!({ "text": "hello", "limit": 10 }));
    let by_annotations = FilterLayer::new().hide_destructive(true);
    Group::new("rules")
        .case("leaf", &leaf, &request)
        .case("limit", &limits().layer(leaf.clone()), &request)
        .against("leaf")
        .case("advertise", &advertised().layer(leaf.clone()), &request)
        .against("leaf")
        .case("flow", &flow(&leaf).layer(leaf.clone()), &request)
        .against("leaf")
        .case("flow_labels", &flow(&leaf).layer(leaf.clone()), &labeled)
        .against("leaf")
        .case("composite", &composites(&leaf).layer(leaf.clone()), &request)
        .against("leaf")
        .case("alias", &aliases(&leaf).layer(leaf.clone()), &request)
        .against("leaf")
        .case("alias_renames", &aliases(&leaf).layer(leaf.clone()), &renamed)
        .against("leaf")
        .case("alias_renames_argument", &aliases(&leaf).layer(leaf.clone()), &with_argument)
        .against("leaf")
        .case("filter", &filter().layer(leaf.clone()), &request)
        .against("leaf")
        .case("filter_by_annotations", &by_annotations.layer(leaf.clone()), &request)
        .against("leaf")
        .case("validate", &strict().layer(leaf.clone()), &request)
        .against("leaf")
        .case("stack", &stack(&leaf).layer(leaf.clone()), &request)
        .against("leaf")
        .case("stack_renames", &stack(&leaf).layer(leaf.clone()), &renamed)
        .against("leaf")
}

/// `tools/list` of many tools.
fn list() -> Group {
    let leaf = Leaf::new(MANY);
    let request = Request::list_tools();
    Group::new("list_1000")
        .case("leaf", &leaf, &request)
        .case("filter", &filter().layer(leaf.clone()), &request)
        .against("leaf")
        .case("alias", &aliases(&leaf).layer(leaf.clone()), &request)
        .against("leaf")
        .case("composite", &composites(&leaf).layer(leaf.clone()), &request)
        .against("leaf")
        .case("advertise", &advertised().layer(leaf.clone()), &request)
        .against("leaf")
        .case("empty_stack", &StackLayer::new().layer(leaf.clone()), &request)
        .against("leaf")
        .case("stack", &stack(&leaf).layer(leaf.clone()), &request)
        .against("leaf")
}

/// Searches over many tools; the first lists them and builds the index.
fn search() -> Group {
    let leaf = Leaf::new(MANY);
    let layer = AdvertiseLayer::new().mode(Mode::Search);
    let search = |query| call("search_tools", json!({ "query": query }));
    let service = layer.layer(leaf.clone());
    let first = {
        let (layer, leaf) = (layer, leaf.clone());
        move || layer.layer(leaf.clone())
    };
    Group::new("search_1000")
        .case("list", &leaf, &Request::list_tools())
        .case("name", &service, &search("create_issue_github"))
        .case("words", &service, &search("create a new issue in the repository"))
        .case("beginnings", &service, &search("sea repos mes dat tab use"))
        .case("everything", &service, &search(""))
        .first_call("words_with_index", first, &search("create a new issue in the repository"))
        .against("words")
}

/// A lock of many tools: lists through it, a list that is compared for the first time, and a call.
fn lock() -> Group {
    let leaf = Leaf::new(MANY);
    let mut approved = Lock::new();
    let listed = leaf.clone().call(Request::list_tools()).into_inner();
    let page = listed.expect("infallible");
    for tool in &page.tools().expect("a list of tools").tools {
        approved.pin("backend", tool).expect("the names differ");
    }
    let layer = LockLayer::new(&approved, "backend");
    let (request, service) = (call(&leaf.name(5), small_arguments()), layer.layer(leaf.clone()));
    let first = {
        let leaf = leaf.clone();
        move || layer.layer(leaf.clone())
    };
    Group::new("lock_1000")
        .case("list", &leaf, &Request::list_tools())
        .case("list_locked", &service, &Request::list_tools())
        .against("list")
        .first_call("list_compared", first, &Request::list_tools())
        .against("list")
        .case("call", &leaf, &request)
        .case("call_locked", &service, &request)
        .against("call")
}

/// Filters that allow increasing numbers of tools by their names.
fn names() -> Group {
    let leaf = Leaf::new(100);
    let request = call(&leaf.name(5), small_arguments());
    [10, 1_000, 10_000].into_iter().fold(Group::new("names"), |group, count| {
        let names = (0..count).map(leaf::name).chain([leaf.name(5)]);
        let tools = Selection::default().allow(names).expect("names are patterns");
        let filter = FilterLayer::new().tools(tools);
        let group = group.case(count.to_string(), &filter.layer(leaf.clone()), &request);
        if count == 10 { group } else { group.against("10") }
    })
}

/// Small and large arguments, measured.
fn sizes() -> Group {
    let leaf = Leaf::new(1);
    let limit = LimitLayer::new().max_argument_bytes(4 * KIB_64).max_depth(32);
    let value = "x".repeat(KIB_64 / 512);
    let object = (0..512).map(|index| (format!("key_{index:03}"), value.clone().into()));
    let group = |group: Group, name: &str, plain: &'static str, arguments| {
        let request = call(&leaf.name(0), arguments);
        let group = group.case(plain, &leaf, &request);
        group.case(name, &limit.layer(leaf.clone()), &request).against(plain)
    };
    let sizes = group(Group::new("sizes"), "small", "small_leaf", small_arguments());
    let string = json!({ "q": "x".repeat(KIB_64) });
    let sizes = group(sizes, "string_64k", "string_64k_leaf", string);
    group(sizes, "members_64k", "members_64k_leaf", Value::Object(object.collect()))
}

// === Fixtures ===

/// Limits that are never exceeded here.
fn limits() -> LimitLayer {
    LimitLayer::new().max_argument_bytes(4 * KIB_64).max_depth(32)
}

/// 40 patterns of all sorts, which hide a few tools.
fn selection(prefix: &str) -> Selection {
    let exact = (0..20).map(|index| format!("{prefix}_{index}"));
    let globs = (0..12).map(|index| format!("{prefix}_{index}_*"));
    let expressions = (0..8).map(|index| format!("re:{prefix}_({index}|x)+_.*"));
    let denied = exact.chain(globs).chain(expressions);
    let denied = denied.chain(["*_event_*".to_owned()]);
    Selection::default().deny(denied).expect("the patterns are sound")
}

fn filter() -> FilterLayer {
    FilterLayer::new().tools(selection("secret"))
}

/// Labels for 100 patterns, and for tool 6.
fn flow(leaf: &Leaf) -> FlowLayer {
    let select =
        |tools: Vec<String>| Selection::default().allow(tools).expect("the patterns are sound");
    let others = (0..100).map(|index| format!("secret_{index}_*")).collect();
    let policy = FlowPolicy::new()
        .label(select(others), [FlowLabel::Egress])
        .label(select(vec![leaf.name(6)]), [FlowLabel::Private]);
    FlowLayer::new(policy).mode(SessionMode::Deny)
}

fn advertised() -> AdvertiseLayer {
    AdvertiseLayer::new().tools(selection("internal"))
}

/// 20 aliases, of tools 20 to 39; every second one renames an argument as well.
fn aliases(leaf: &Leaf) -> AliasLayer {
    let aliases = (0..20).map(|index| {
        let alias = ToolAlias::new(leaf.name(20 + index)).name(format!("alias_{index}"));
        match index % 2 {
            0 => alias,
            _ => alias.argument("q", ArgumentAlias::new().rename("text")),
        }
    });
    AliasLayer::new().tools(aliases).expect("the aliases are sound")
}

fn composites(leaf: &Leaf) -> CompositeLayer {
    let composites = (0..5).map(|index| {
        let targets = [leaf.name(5 + index), leaf.name(10 + index)];
        CompositeTool::fan_out(format!("composite_{index}"), "Calls two tools", targets)
    });
    CompositeLayer::new(composites).expect("the composites are sound")
}

fn strict() -> ValidateLayer {
    ValidateLayer::new().schema(SchemaMode::Strict)
}

/// All layers with 100 rules and more.
fn stack(leaf: &Leaf) -> StackLayer {
    StackLayer::new()
        .limit(limits())
        .advertise(advertised())
        .composite(composites(leaf))
        .alias(aliases(leaf))
        .filter(filter())
        .validate(strict().max_argument_bytes(4 * KIB_64))
}

fn call(tool: &str, arguments: Value) -> Request {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments).into()
}

fn small_arguments() -> Value {
    json!({ "q": "hello", "limit": 10 })
}

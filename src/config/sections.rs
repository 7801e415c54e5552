//! The sections that a view can replace, and the layers that these sections configure.

use std::sync::Arc;

use super::{
    AuthConfig, BackendConfig, RouterConfig,
    advertise::{self, AdvertiseTable},
    aliases::{self, AliasTable},
    budget::{self, BudgetTable},
    cache::{self, CacheTable},
    caller::CallerConfig,
    composite_tools,
    filter::{self, FilterTable},
    flow,
    flow_session::FlowSessionConfig,
    limits::{self, LimitsTable},
    progress::{self, ProgressTable},
    read::Reader,
    redactions::{self, RedactionTable},
    redis::RedisConfig,
    state::StateConfig,
    stores::Stores,
    tool_patterns,
    truncate::{self, ResultsTable, TruncateTable},
    validate::{self, ValidateTable},
};
use crate::{
    composite::{CompositeLayer, CompositeTool, FlowPolicy, TaskMode},
    expr::Variables,
    observe::Observer,
    stack::StackLayer,
    tasks::TaskRegistry,
    trace::TraceLayer,
};

/// The sections that a view can replace.
#[derive(Clone, Default)]
pub(super) struct Sections {
    pub(super) limits: LimitsTable,
    pub(super) progress: ProgressTable,
    pub(super) validate: ValidateTable,
    pub(super) filter: FilterTable,
    pub(super) cache: Vec<CacheTable>,
    pub(super) redactions: Vec<RedactionTable>,
    pub(super) budget: BudgetTable,
    pub(super) truncate: TruncateTable,
    pub(super) results: Option<ResultsTable>,
    pub(super) aliases: Vec<AliasTable>,
    pub(super) advertise: AdvertiseTable,
    /// The composites. Their targets, such as `github/search`, are not resolved to tool names yet.
    pub(super) composite_tools: Vec<CompositeTool>,
}

/// The sections that all views share.
pub(super) struct Shared {
    pub(super) auth: Option<AuthConfig>,
    pub(super) backends: Vec<BackendConfig>,
    pub(super) router: RouterConfig,
    pub(super) redis: RedisConfig,
    pub(super) caller: CallerConfig,
    pub(super) state: StateConfig,
    pub(super) variables: Variables,
    pub(super) flow: FlowPolicy,
    pub(super) flow_session: FlowSessionConfig,
}

/// The composites, layers and stores of a configuration file or a view.
#[derive(Clone, Debug)]
pub(super) struct Layers {
    /// The path of the view to which the layers belong, such as `/team-a`. `None` if they belong to
    /// no view.
    view: Option<Arc<str>>,
    pub(super) composite_tools: Vec<CompositeTool>,
    pub(super) composite_layer: CompositeLayer,
    pub(super) stack_layer: StackLayer,
    pub(super) stores: Stores,
}

// === impl Sections ===

impl Sections {
    /// Builds the layers that the sections configure, and reports errors to `reader`. For a view,
    /// `file` contains the layers of the whole file, whose stores the view can share. `file` is
    /// `None` when the layers of the file itself are built. Returns `None` only if at least one
    /// error was reported.
    pub(super) fn build(
        mut self,
        shared: &Shared,
        file: Option<&Layers>,
        reader: &mut Reader<'_, '_>,
    ) -> Option<Layers> {
        let Shared { backends, router, redis, caller, state, variables, .. } = shared;
        for tool in &mut self.composite_tools {
            tool.variables = variables.clone();
            if state.has_tasks_per_replica() {
                tool.task.get_or_insert(TaskMode::Never);
            }
        }
        let (limit, validate) =
            validate::build(&self.validate, validate::door(), &["validate".into()], reader);
        let filter = filter::build(self.filter, &["filter".into()], reader);
        let aliases = [aliases::SECTION.into()];
        let alias = aliases::build(self.aliases, router.separator(), &aliases, reader);
        let advertise = advertise::build(self.advertise, reader);
        let (composite_tools, layer) =
            composite_tools::build(self.composite_tools, backends, router, &alias, reader);
        if let Some(layer) = &layer {
            flow::check(&shared.flow, layer, &alias, reader);
        }
        let (limits, cancelled_runs) = limits::build(&self.limits, reader);
        let stack_layer = cache::apply(self.cache, StackLayer::new(), redis, caller, reader);
        let redact = redactions::build(self.redactions, reader);
        let mut stores = Stores {
            state: state.clone(),
            budget: budget::build(self.budget, redis, caller, reader),
            truncate: truncate::build(&self.truncate, self.results, redis, caller, reader),
            flow: shared.flow_session.layer(&shared.flow, &alias),
            caller: caller.clone(),
            cancelled_runs,
            tasks: state.tasks(redis),
        };
        if let Some(file) = file {
            stores.take_over(&file.stores);
        }
        tool_patterns::check(backends, router, &composite_tools, &alias, reader);
        let composite_layer = progress::apply(&self.progress, layer?.limits(limits));
        let composite_layer = flow::apply(&shared.flow, composite_layer, &alias);
        let composite_layer = stores.composite(composite_layer);
        let stack_layer = stack_layer
            .limit(limit)
            .advertise(advertise)
            .alias(alias)
            .filter(filter)
            .validate(validate)
            .redact(redact);
        let stack_layer = stores.apply(stack_layer, composite_layer.clone());
        Some(Layers { view: None, composite_tools, composite_layer, stack_layer, stores })
    }
}

// === impl Layers ===

impl Layers {
    /// Adds an observer, which is notified when composites run.
    pub(super) fn observe(&mut self, observer: impl Observer + 'static) {
        self.composite_layer = self.composite_layer.clone().observer(observer);
        self.stack_layer = self.stack_layer.clone().composite(self.composite_layer.clone());
    }

    /// Sets the registry of tasks.
    pub(super) fn set_task_registry(&mut self, registry: &TaskRegistry) {
        self.stores.tasks = registry.clone();
        let stack = self.stack_layer.clone();
        self.stack_layer = self.stores.apply(stack, self.composite_layer.clone());
    }

    /// Returns the path of the view to which the layers belong, such as `/team-a`. Returns `None`
    /// if they belong to no view.
    pub(super) fn view(&self) -> Option<&str> {
        self.view.as_deref()
    }

    /// Sets the path of the view to which the layers belong. Spans, metrics and events of runs
    /// contain the path.
    pub(super) fn set_view(&mut self, path: &str) {
        self.view = Some(path.into());
        self.trace(TraceLayer::new());
    }

    /// Sets the layer that propagates the trace context, and records spans and metrics.
    pub(super) fn trace(&mut self, mut trace: TraceLayer) {
        if let Some(view) = &self.view {
            trace = trace.view(view.clone());
        }
        self.stack_layer = self.stack_layer.clone().trace(trace);
    }
}

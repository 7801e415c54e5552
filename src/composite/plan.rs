//! Runs a composite without a server. A function, instead of a Tower service, handles its tool
//! calls.

use std::{fmt, future::Future, sync::Arc};

use rmcp::model::{CallToolRequestParams, CallToolResult, ErrorData, JsonObject};
use serde_json::Value;

use super::{
    answer::OutputSchema,
    compile::Program,
    definition::CompositeTool,
    error::DefinitionErrors,
    flowchart,
    input::Input,
    preview::Preview,
    resolve,
    run::{Ended, finish},
};
use crate::{
    engine::{
        caller::{Call, ToolReply},
        limits::CallLimits,
        outcome::StepError,
        run::Run,
        scope::Scope,
        state::RunState,
    },
    mermaid::Flowchart,
    message::Context,
    observe::{Observer, Observers},
};

/// A compiled composite tool that runs without a server. You pass a function that handles the tool
/// calls of the composite. Use a `Plan` to run composites in your own code.
///
/// In contrast to a [`CompositeLayer`](super::CompositeLayer), a plan does not know the input
/// schemas of the tools. It therefore does not convert arguments to the types that a tool expects.
///
/// # Examples
///
/// ```
/// use mcp_composite::{
///     composite::{CompositeTool, Plan, Step, ToolCall},
///     message::Context,
/// };
/// use rmcp::model::{CallToolRequestParams, CallToolResult, ErrorData};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let upper = ToolCall::new("upper").arguments(json!({ "text": "$input.text" }));
/// let double = ToolCall::new("double").arguments(json!({ "text": "{{ prev.text }}!" }));
/// let steps = [Step::new("once", upper), Step::new("twice", double)];
/// let plan = Plan::new(CompositeTool::pipeline("shout_twice", "Shouts", steps))?;
///
/// let call = |call: CallToolRequestParams, _: Context| async move {
///     let text = call.arguments.unwrap_or_default()["text"].as_str().unwrap_or_default().to_owned();
///     let text = if call.name == "upper" { text.to_uppercase() } else { format!("{text} {text}") };
///     Ok::<_, ErrorData>(CallToolResult::structured(json!({ "text": text })))
/// };
/// let input = json!({ "text": "ahoy" }).as_object().cloned().unwrap();
/// let result = plan.run(input, &Context::default(), call).await?;
///
/// assert_eq!(result.structured_content, Some(json!({ "text": "AHOY! AHOY!" })));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Plan {
    program: Arc<Program>,
    input: Arc<Input>,
    limits: CallLimits,
    observers: Observers,
}

// === impl Plan ===

impl Plan {
    /// Checks the definition of a composite tool and compiles it to a plan.
    ///
    /// # Errors
    ///
    /// Returns all errors in the definition at once, each with its path.
    pub fn new(composite: CompositeTool) -> Result<Self, DefinitionErrors> {
        let program = Program::compile(vec![composite], None)?;
        let schema = resolve::input_schema(&program.composites[0], &[]);
        Ok(Self {
            program: Arc::new(program),
            input: Arc::new(Input::new(schema)),
            limits: CallLimits::default(),
            observers: Observers::default(),
        })
    }

    /// Sets the resource limits of each run of the plan, such as the maximum number of tool calls.
    #[must_use]
    pub const fn limits(mut self, limits: CallLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Adds an [observer](crate::observe), which receives an event whenever a run of the plan, or
    /// one of its steps, starts or ends.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observers.push(observer);
        self
    }

    /// Runs the plan with these arguments. Each tool call is passed to the function `call`,
    /// and the outcomes of the calls are combined into one result.
    ///
    /// The function `call` receives the parameters of a tool call, and a new context that is
    /// derived from `context`. If the future that `run` returns is dropped, all pending calls are
    /// dropped too. An elicitation step fails, because a plan has no client that could ask the
    /// user.
    ///
    /// # Errors
    ///
    /// Returns an error if the arguments do not match the input schema of the composite. If the run
    /// itself fails, `run` returns `Ok` with a tool result in which `isError` is set.
    ///
    /// Dropping the returned future ends the run without running its finally steps, even if
    /// [`Finally::on_cancel`](super::Finally::on_cancel) is set.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime, or if the time driver of the runtime is not enabled.
    pub async fn run<F, R>(
        &self,
        arguments: JsonObject,
        context: &Context,
        mut call: F,
    ) -> Result<CallToolResult, ErrorData>
    where
        F: FnMut(CallToolRequestParams, Context) -> R + Send,
        R: Future<Output = Result<CallToolResult, ErrorData>> + Send + 'static,
    {
        let compiled = &self.program.composites[0];
        let arguments = self.checked(arguments)?;
        let mut scope = Scope::new(self.limits, compiled.definition.timeout);
        if !compiled.plan.questions.is_empty() {
            scope = scope.close("a plan that runs by itself asks nobody".into());
        }
        let scope = scope.observers(self.observers.clone());
        let scope = scope.of_run(&compiled.name, compiled.definition.limits, context, None);
        let state = RunState::new(arguments, compiled.plan.steps().len());
        let caller = |Call { tool, arguments, context, scope, .. }: Call| {
            let mut params = CallToolRequestParams::new(tool.to_string());
            params.arguments = Some(arguments);
            let called = call(params, context);
            async move {
                let called = called.await.map_err(StepError::protocol).map(ToolReply::from);
                scope.keep(&called).and(called)
            }
        };
        let mut run = Run::new(&compiled.plan, state, context, &scope, caller);
        let has_ended = run.begin_run();
        let run = if has_ended { run } else { run.wait_until_end().await };
        // The output schemas of the tools are not known to a plan.
        let advertised =
            if compiled.output_schema.is_some() { OutputSchema::Own } else { OutputSchema::None };
        match finish(run, compiled, context, &scope, &advertised).await {
            Ended::Result { result, .. } => Ok(result),
            Ended::Asks(_) => Err(ErrorData::internal_error("no user can be asked", None)),
        }
    }

    /// Returns a preview of the tool calls that the plan would make with these arguments. No tool
    /// is called, so values that depend on the outputs of tools remain unknown.
    ///
    /// # Errors
    ///
    /// Returns an error if the arguments do not match the input schema of the composite.
    pub fn preview(&self, arguments: JsonObject) -> Result<Preview, ErrorData> {
        let compiled = &self.program.composites[0];
        let arguments = self.checked(arguments)?;
        let composite = compiled.name.to_string();
        let waves = compiled.plan.preview(&arguments, &|_, arguments| Ok(arguments));
        Ok(Preview { composite, waves })
    }

    /// Returns a [Mermaid](crate::mermaid) flowchart of the plan.
    #[must_use]
    pub fn flowchart(&self) -> Flowchart {
        flowchart::flowchart(&self.program, 0)
    }

    /// Adds the defaults of the composite's input schema to the arguments, and then checks the
    /// arguments.
    fn checked(&self, arguments: JsonObject) -> Result<Value, ErrorData> {
        let tool = &self.program.composites[0].name;
        let checked = self.input.check(tool, Some(arguments), false);
        checked.map(|checked| checked.arguments).map_err(|refusal| refusal.to_error())
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("composite", &self.program.composites[0].name)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

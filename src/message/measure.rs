//! Checks requests against limits on their size and nesting depth. A request is neither copied nor
//! measured beyond the limits.

use std::iter;

use rmcp::model::{
    ClientRequest, CompleteRequestParams, InitializeRequestParams, InputResponses, JsonObject,
    Reference, RequestId,
};
use serde_json::Value;

use super::{Refusal, Request, Subject, content_size::SMALL};

/// The maximum nesting depth that `serde_json` can parse, and therefore of all requests that arrive
/// over a connection.
pub(crate) const MAX_JSON_DEPTH: usize = 128;
/// The number of bytes of each name, URI or cursor that do not count toward the size limit.
const FREE_NAME: usize = 1024;
/// The number of bytes of `_meta` that do not count toward the size limit. Also applies to other
/// data about the client, such as the parameters of `initialize`.
const FREE_META: usize = 16 * 1024;
/// The nesting depth that is always allowed for `_meta` and the parameters of `initialize`. With a
/// lower limit, clients could not declare their capabilities.
const META_LEVELS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Excess {
    Bytes,
    Levels,
}

/// The limits on the size and the nesting depth of a request. `None` means unlimited.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bounds {
    bytes: Option<usize>,
    levels: Option<usize>,
}

/// The rest of the limits while a request is measured.
struct Budget {
    bytes: usize,
    levels: usize,
}

type Within = Result<(), Excess>;

/// Returns `true` if arrays and objects in a JSON value are nested deeper than `levels`.
pub(crate) fn is_deeper(value: &Value, levels: usize) -> bool {
    Budget { bytes: usize::MAX, levels }.value(value, levels).is_err()
}

// === impl Bounds ===

impl Bounds {
    /// Creates bounds without limits.
    pub(crate) const fn new() -> Self {
        Self { bytes: None, levels: None }
    }

    /// Sets the maximum size of a request, in bytes. Some parts do not count, such as the first
    /// [`FREE_NAME`] bytes of a name.
    pub(crate) const fn max_argument_bytes(self, bytes: usize) -> Self {
        Self { bytes: Some(bytes), ..self }
    }

    /// Sets the maximum nesting depth of a request, at most [`MAX_JSON_DEPTH`].
    pub(crate) const fn max_depth(self, levels: usize) -> Self {
        Self { levels: Some(if levels < MAX_JSON_DEPTH { levels } else { MAX_JSON_DEPTH }), ..self }
    }

    /// Checks that a request is within the limits.
    ///
    /// # Errors
    ///
    /// If a limit is exceeded, returns a refusal with the name of its setting.
    #[inline]
    pub(crate) fn check(&self, request: &Request) -> Result<(), Refusal> {
        if self.bytes.is_none() && self.levels.is_none() {
            return Ok(());
        }
        self.measure(request)
    }

    fn measure(&self, request: &Request) -> Result<(), Refusal> {
        let bytes = self.bytes.unwrap_or(usize::MAX);
        let levels = self.levels.unwrap_or(MAX_JSON_DEPTH);
        match (Budget { bytes, levels }).request(request) {
            Ok(()) => Ok(()),
            Err(Excess::Bytes) => Err(Refusal::OverLimit {
                unit: "bytes",
                limit: bytes,
                setting: "max_argument_bytes",
            }),
            Err(Excess::Levels) => Err(Refusal::too_deep(levels)),
        }
    }
}

// === impl Budget ===

impl Budget {
    fn request(&mut self, request: &Request) -> Within {
        if let RequestId::String(id) = request.context().plain_id() {
            self.name(id)?;
        }
        let meta = request.context().meta();
        self.beyond(FREE_META, |budget| budget.members(meta.iter(), budget.levels))?;
        match request.subject() {
            Subject::Item(_, name) => self.name(name)?,
            Subject::List(_, cursor) => self.name(cursor.unwrap_or_default())?,
            Subject::Other => (),
        }
        self.params(request.message())
    }

    /// Measures the parameters of a request, without the name or URI of the requested item, which
    /// the caller measures.
    ///
    /// The parameters contain no `_meta`, because rmcp has moved it to the context of the request.
    fn params(&mut self, message: &ClientRequest) -> Within {
        use ClientRequest as Message;

        match message {
            Message::CallToolRequest(call) => {
                let call = &call.params;
                self.arguments(call.arguments.as_ref())?;
                self.round(call.input_responses.as_ref(), call.request_state.as_deref())
            }
            Message::GetPromptRequest(get) => {
                let get = &get.params;
                self.arguments(get.arguments.as_ref())?;
                self.round(get.input_responses.as_ref(), get.request_state.as_deref())
            }
            Message::ReadResourceRequest(read) => {
                let read = &read.params;
                self.round(read.input_responses.as_ref(), read.request_state.as_deref())
            }
            Message::ReadResourceDirectoryRequest(read) => {
                self.name(read.params.cursor.as_deref().unwrap_or_default())
            }
            Message::CompleteRequest(complete) => self.completion(&complete.params),
            Message::GetTaskRequest(task) => self.name(&task.params.task_id),
            Message::CancelTaskRequest(task) => self.name(&task.params.task_id),
            Message::UpdateTaskRequest(task) => {
                self.name(&task.params.task_id)?;
                self.round(Some(&task.params.input_responses), None)
            }
            Message::ListSkillsRequest(list) => {
                let cursor = list.params.as_ref().and_then(|params| params.cursor.as_deref());
                self.name(cursor.unwrap_or_default())
            }
            Message::GetSkillRequest(get) => self.name(&get.params.uri),
            Message::SubscriptionsListenRequest(listen) => {
                let uris = listen.params.notifications.resource_subscriptions.as_deref();
                let mut uris = uris.unwrap_or_default().iter();
                self.beyond(FREE_META, |budget| uris.try_for_each(|uri| budget.text(uri)))
            }
            Message::InitializeRequest(initialize) => {
                self.beyond(FREE_META, |budget| budget.client(&initialize.params))
            }
            Message::CustomRequest(custom) => {
                self.name(&custom.method)?;
                match &custom.params {
                    Some(Value::Object(params)) => self.arguments(Some(params)),
                    Some(params) => self.value(params, self.levels),
                    None => Ok(()),
                }
            }
            // Other messages have no parameters besides their subject.
            _ => Ok(()),
        }
    }

    /// Measures the arguments of a tool call. The outermost brackets do not count, so that empty
    /// arguments have the size zero.
    fn arguments(&mut self, arguments: Option<&JsonObject>) -> Within {
        arguments.map_or(Ok(()), |arguments| self.members(arguments, self.levels))
    }

    /// Measures the parameters of a request that a client repeats after a question: its answers in
    /// `responses`, and the server's request state in `state`.
    fn round(&mut self, responses: Option<&InputResponses>, state: Option<&str>) -> Within {
        if let Some(state) = state {
            self.text(state)?;
        }
        responses.map_or(Ok(()), |responses| self.members(responses, self.levels))
    }

    fn completion(&mut self, complete: &CompleteRequestParams) -> Within {
        if let Reference::Prompt(prompt) = &complete.r#ref {
            self.name(prompt.title.as_deref().unwrap_or_default())?;
        }
        self.name(&complete.argument.name)?;
        self.text(&complete.argument.value)?;
        let context = complete.context.as_ref().and_then(|context| context.arguments.as_ref());
        for (name, value) in context.into_iter().flatten() {
            self.take(name.len())?;
            self.text(value)?;
        }
        Ok(())
    }

    /// Measures the parameters of `initialize`, such as the capabilities of the client.
    fn client(&mut self, initialize: &InitializeRequestParams) -> Within {
        let client = &initialize.client_info;
        let texts = [&client.title, &client.description, &client.website_url];
        let texts = texts.into_iter().flatten().chain([&client.name, &client.version]);
        let icons = client.icons.iter().flatten().flat_map(|icon| {
            let sizes = icon.sizes.iter().flatten();
            iter::once(&icon.src).chain(&icon.mime_type).chain(sizes)
        });
        texts.chain(icons).try_for_each(|text| self.text(text))?;
        self.text(initialize.protocol_version.as_str())?;

        let can = &initialize.capabilities;
        let declared = can.experimental.iter().chain(&can.extensions).flatten();
        for (name, settings) in declared {
            self.text(name)?;
            self.members(settings, self.levels)?;
        }
        let sampling = can.sampling.iter().flat_map(|can| [&can.tools, &can.context]).flatten();
        for settings in sampling {
            self.members(settings, self.levels)?;
        }
        Ok(())
    }

    /// Measures a name, URI or cursor. The first [`FREE_NAME`] bytes do not count.
    fn name(&mut self, name: &str) -> Within {
        self.take(name.len().saturating_sub(FREE_NAME))
    }

    /// Measures a part of the request with `measure`. The first `free` bytes do not count.
    fn beyond(&mut self, free: usize, measure: impl FnOnce(&mut Self) -> Within) -> Within {
        let bytes = self.bytes.saturating_add(free);
        let mut generous = Self { bytes, levels: self.levels.max(META_LEVELS) };
        measure(&mut generous)?;
        self.take((bytes - generous.bytes).saturating_sub(free))
    }

    fn value(&mut self, value: &Value, levels: usize) -> Within {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => self.take(SMALL),
            Value::String(text) => self.text(text),
            Value::Array(elements) => {
                self.take(SMALL)?;
                let levels = levels.checked_sub(1).ok_or(Excess::Levels)?;
                elements.iter().try_for_each(|element| self.value(element, levels))
            }
            Value::Object(members) => {
                self.take(SMALL)?;
                self.members(members, levels)
            }
        }
    }

    fn members<'v>(
        &mut self,
        members: impl IntoIterator<Item = (&'v String, &'v Value)>,
        levels: usize,
    ) -> Within {
        let levels = levels.checked_sub(1).ok_or(Excess::Levels)?;
        members.into_iter().try_for_each(|(key, value)| {
            self.take(key.len())?;
            self.value(value, levels)
        })
    }

    fn text(&mut self, text: &str) -> Within {
        self.take(text.len().max(SMALL))
    }

    fn take(&mut self, bytes: usize) -> Within {
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Excess::Bytes)?;
        Ok(())
    }
}

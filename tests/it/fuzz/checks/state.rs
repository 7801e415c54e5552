//! States of suspended runs: a store accepts only states that it created, and only from their
//! caller.

use std::sync::Arc;

use arbitrary::{Arbitrary, Unstructured};
use futures::FutureExt;
#[cfg(feature = "sealed")]
use mcp_composite::store::SealedStore;
use mcp_composite::{
    composite::{Composite, CompositeLayer, CompositeTool, Elicitation, Step},
    message::{Context, ToolAnswer},
    store::{MemoryStore, PutError, SignedStore, Store, TakeError},
    testing::{self, Server},
};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};

use super::run;

const KEY: &str = "a key of at least thirty-two bytes";
const OTHER_KEY: &str = "another key of at least 32 bytes.";

/// A state, and changes of its text.
#[derive(Arbitrary, Debug)]
struct Tampering<'a> {
    state: &'a [u8],
    binding: &'a [u8],
    /// The state of another caller, who has a text as well.
    other_state: &'a [u8],
    other_binding: &'a [u8],
    edits: Vec<Edit<'a>>,
    /// Whether the run of a composite is resumed as another one, with other arguments or as another
    /// caller.
    other_tool: bool,
    other_arguments: bool,
    other_caller: bool,
}

/// One change of a text.
#[derive(Arbitrary, Debug)]
enum Edit<'a> {
    Flip {
        at: u16,
        bit: u8,
    },
    Insert {
        at: u16,
        byte: u8,
    },
    Remove {
        at: u16,
    },
    Cut {
        at: u16,
    },
    /// Replaces a part between dots by that of the other text.
    Swap {
        part: u8,
    },
    Append(&'a str),
    Replace(&'a str),
    /// Adds base64 padding, which is optional.
    Pad,
    Urlsafe,
    Trim,
}

/// The caller.
#[derive(Clone)]
struct Caller(bool);

pub(super) fn check(data: &[u8]) {
    let Ok(tampering) = Tampering::arbitrary_take_rest(Unstructured::new(data)) else { return };
    let keys = [("default", OTHER_KEY), ("old", KEY)];
    let signed = SignedStore::new(KEY).expect("a long key");
    tampering.of_a_text(&signed, &SignedStore::ring(keys).expect("long keys"));
    tampering.of_a_text(&MemoryStore::for_runs(), &MemoryStore::for_runs());
    run(tampering.of_a_run(Arc::new(signed)));
    run(tampering.of_a_run(Arc::new(MemoryStore::for_runs())));
    #[cfg(feature = "sealed")]
    {
        let sealed = SealedStore::new(KEY).expect("a long key");
        tampering.of_a_text(&sealed, &SealedStore::ring(keys).expect("long keys"));
        run(tampering.of_a_run(Arc::new(sealed)));
    }
}

fn put(store: &dyn Store, state: &[u8], binding: &[u8]) -> Result<String, PutError> {
    store.put(state.to_vec(), binding, None).now_or_never().expect("nothing to wait for")
}

fn take(store: &dyn Store, text: &str, binding: &[u8]) -> Result<Vec<u8>, TakeError> {
    store.take(text, binding, None).now_or_never().expect("nothing to wait for")
}

fn is_invalid(taken: &Result<Vec<u8>, TakeError>) -> bool {
    matches!(taken, Err(TakeError::Invalid(_)))
}

// === impl Tampering ===

impl Tampering<'_> {
    /// Checks that a store accepts only the unchanged text with its binding.
    fn of_a_text(&self, store: &dyn Store, elsewhere: &dyn Store) {
        let text = put(store, self.state, self.binding).expect("room for it");
        let other = put(store, self.other_state, self.other_binding).expect("room for it");
        let changed = self.changed(&text, &other);
        for binding in [self.binding, self.other_binding] {
            let is_unchanged = (changed == text && binding == self.binding)
                || (changed == other && binding == self.other_binding);
            if !is_unchanged {
                let taken = take(store, &changed, binding);
                assert!(is_invalid(&taken), "{changed:?} is not {text:?}: {taken:?}");
            }
        }
        if self.other_binding != self.binding {
            assert!(is_invalid(&take(store, &text, self.other_binding)), "{text}");
        }
        assert!(is_invalid(&take(elsewhere, &text, self.binding)), "{text}");
        assert_eq!(take(store, &text, self.binding).as_deref(), Ok(self.state), "{text}");
    }

    /// Checks that a run is resumed only for its caller, with the call that began it.
    async fn of_a_run(&self, store: Arc<dyn Store>) {
        let server = Server::new().gives("details", json!({ "version": 1 })).says("deploy", "done");
        let caller = |context: &Context| {
            let Caller(is_other) = context.extensions().get()?;
            Some(if *is_other { "bob" } else { "alice" }.to_owned())
        };
        let layer = CompositeLayer::new([approval("release"), approval("other")]);
        let layer = layer.unwrap_or_else(|errors| panic!("{errors}"));
        let service = layer.state(store).caller(caller).layer(server.clone());

        let asks = |arguments, is_other| {
            let service = service.clone();
            async move {
                match call(&service, "release", arguments, is_other, None).await {
                    ToolAnswer::InputRequired(asks) => asks.request_state.expect("a state"),
                    other => panic!("no question, but {other:?}"),
                }
            }
        };
        let text = asks(json!({ "n": 1 }), false).await;
        let other = asks(json!({ "n": 2 }), true).await;
        assert_eq!(server.called(), ["details", "details"]);

        let changed = self.changed(&text, &other);
        let tool = if self.other_tool { "other" } else { "release" };
        let n = if self.other_arguments { 2 } else { 1 };
        let answer =
            call(&service, tool, json!({ "n": n }), self.other_caller, Some(&changed)).await;
        let is_of = |created: &String, n_of, is_other| {
            changed == *created && !self.other_tool && n == n_of && self.other_caller == is_other
        };
        if is_of(&text, 1, false) || is_of(&other, 2, true) {
            assert!(matches!(answer, ToolAnswer::Result(_)), "{answer:?}");
            assert_eq!(server.called(), ["details", "details", "deploy"]);
        } else {
            let ToolAnswer::Error(error) = &answer else { panic!("{changed:?}: {answer:?}") };
            assert_eq!(error.message, "invalid `requestState`");
            assert_eq!(server.called(), ["details", "details"]);
        }
    }

    fn changed(&self, text: &str, other: &str) -> String {
        self.edits.iter().take(4).fold(text.to_owned(), |text, edit| edit.apply(text, other))
    }
}

/// A composite that asks before it deploys.
fn approval(name: &str) -> CompositeTool {
    let steps = [
        Step::new("details", "details"),
        Step::new("approve", Elicitation::new("Sure?", json!({}))).depends_on(["details"]),
        Step::new("deploy", "deploy").depends_on(["approve"]),
    ];
    CompositeTool::workflow(name, "Deploys if a person says so", steps)
}

async fn call(
    service: &Composite<Server>,
    tool: &str,
    arguments: Value,
    is_other: bool,
    state: Option<&str>,
) -> ToolAnswer {
    let mut request = testing::request(tool, arguments);
    let abilities = json!({ "elicitation": { "form": {} } });
    let context = request.context_mut();
    let key = "io.modelcontextprotocol/clientCapabilities".to_owned();
    context.meta_mut().insert(key, abilities);
    context.extensions_mut().insert(Caller(is_other));
    let params = request.tool_call_mut().expect("a call");
    params.request_state = state.map(str::to_owned);
    let yes = json!({ "approve": { "action": "accept", "content": {} } });
    params.input_responses = state.map(|_| serde_json::from_value(yes).expect("an answer"));
    service.clone().oneshot(request).await.expect("an answer").into_tool_answer()
}

// === impl Edit ===

impl Edit<'_> {
    fn apply(&self, text: String, other: &str) -> String {
        let mut characters: Vec<_> = text.chars().collect();
        let length = characters.len();
        let place = |at: &u16| usize::from(*at) % length.max(1);
        match self {
            Self::Flip { at, bit } => {
                if let Some(character) = characters.get_mut(place(at)) {
                    let changed = u32::from(*character) ^ (1 << (bit % 7));
                    *character = char::from_u32(changed).unwrap_or('A');
                }
            }
            Self::Insert { at, byte } => characters.insert(place(at), char::from(*byte)),
            Self::Remove { at } if length > 0 => drop(characters.remove(place(at))),
            Self::Remove { .. } => (),
            Self::Cut { at } => characters.truncate(place(at)),
            Self::Swap { part } => {
                let mut parts: Vec<_> = text.split('.').collect();
                let place = usize::from(*part) % parts.len();
                parts[place] = other.split('.').nth(place).unwrap_or_default();
                return parts.join(".");
            }
            Self::Append(more) => return text + more,
            Self::Replace(whole) => return (*whole).to_owned(),
            Self::Pad => return text + "=",
            Self::Urlsafe => return text.replace('-', "+").replace('_', "/"),
            Self::Trim => return format!(" {text}\n"),
        }
        characters.into_iter().collect()
    }
}

//! Files: every error has a location and a message, and valid files can be used.

use std::sync::OnceLock;

use jsonschema::Validator;
use mcp_composite::{
    config::{Config, ConfigError},
    message::{Reply, Request},
    testing::{self, Server},
};
use serde_json::Value;
use tower::ServiceExt;

use super::run;

/// The value of all variables, which no message may contain.
const SECRET: &str = "s3cret of at least thirty-two bytes";

/// The maximum size of the error messages of a file, whatever its size.
const MAX_ERROR_BYTES: usize = 100_000;

/// The number of composites of a file that are called.
const MAX_CALLS: usize = 4;

/// The bytes are the text of a file.
pub(super) fn check(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    match read(text) {
        Err(error) => mistakes_have_places(text, &error),
        Ok(config) => {
            another_line_changes_nothing(text, &config);
            editors_accept_it(text);
            it_can_be_used(&config);
        }
    }
}

fn read(text: &str) -> Result<Config, ConfigError> {
    Config::from_toml_str_with_env(text, |name| match name {
        "SECRET" => Some(SECRET.to_owned()),
        "URL" => Some("http://localhost:1/${SECRET}".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    })
}

fn mistakes_have_places(text: &str, error: &ConfigError) {
    let mistakes = error.mistakes();
    assert!((1..=100).contains(&mistakes.len()), "{} mistakes", mistakes.len());
    let places = mistakes.iter().map(|mistake| (mistake.line(), mistake.column()));
    assert!(places.is_sorted(), "not in the order of the file: {mistakes:?}");

    let lines: Vec<_> = text.split('\n').collect();
    let printed = error.to_string();
    for mistake in mistakes {
        let (line, column) = (mistake.line(), mistake.column());
        let columns = lines[line - 1].chars().count() + 1;
        assert!((1..=columns).contains(&column), "column {column} of {columns}: {mistake}");
        assert!(printed.contains(&format!("--> <string>:{line}:{column}\n")), "{printed}");
        assert!(!mistake.message().is_empty(), "{mistake:?}");
    }
    assert!(printed.len() <= MAX_ERROR_BYTES, "{} bytes of messages", printed.len());
    assert!(is_harmless(&printed), "{printed:?}");
    assert!(text.contains(SECRET) || !printed.contains(SECRET), "{printed}");

    let again = read(text).expect_err("the same mistakes");
    assert_eq!(again.to_string(), printed);
}

/// Returns whether a text contains no control characters and no bidirectional formatting.
fn is_harmless(text: &str) -> bool {
    let is_harmful = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    !text.contains(is_harmful)
}

fn another_line_changes_nothing(text: &str, config: &Config) {
    let printed = format!("{config:?}");
    assert!(text.contains(SECRET) || !printed.contains(SECRET), "{printed}");
    let longer = read(&format!("{text}\n# the end")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(format!("{longer:?}"), printed);
}

/// Checks that the schema for editors accepts every key and type that files may have.
fn editors_accept_it(text: &str) {
    static SCHEMA: OnceLock<Validator> = OnceLock::new();
    let schema = SCHEMA.get_or_init(|| {
        let schema = serde_json::from_str(Config::JSON_SCHEMA).expect("JSON");
        jsonschema::draft7::new(&schema).expect("a schema")
    });
    let file: Value = toml::from_str(text.trim_start_matches('\u{feff}')).expect("TOML");
    let wrong = schema.iter_errors(&file).next();
    assert!(wrong.is_none(), "an editor marks what is right: {wrong:?}");
}

/// Checks that a stack lists its tools, and answers the calls of its composites.
fn it_can_be_used(config: &Config) {
    let server = || Server::new().says("a", "text").echoes("b").fails("c", "it broke");
    let backends = config.backends().iter().map(|backend| (backend.name(), server()));
    run(async {
        if config.backends().is_empty() {
            let stack = tower::Layer::layer(&config.stack_layer(), server());
            use_stack(config, stack).await;
        } else {
            use_stack(config, testing::stack(config, backends)).await;
        }
    });
}

async fn use_stack<S>(config: &Config, stack: S)
where
    S: tower::Service<Request, Response = Reply, Error: std::fmt::Debug> + Clone,
{
    let reply = stack.clone().oneshot(Request::list_tools()).await.expect("an answer");
    assert!(reply.tools().is_some() || reply.error().is_some(), "{reply:?}");
    for composite in config.composite_tools().iter().take(MAX_CALLS) {
        let call = Request::call_tool(composite.name().to_owned());
        let reply = stack.clone().oneshot(call).await.expect("an answer");
        if let Ok(result) = reply.into_result() {
            assert!(serde_json::to_string(&result).is_ok(), "{result:?}");
        }
    }
}

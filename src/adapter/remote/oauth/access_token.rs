//! The response of a token endpoint.

use std::{fmt, sync::Arc, time::Duration};

use serde::Deserialize;
use serde_json::Value;

/// The maximum length of an access token in bytes. The limit exists because servers limit the size
/// of request headers, which contain the token.
const MAX_TOKEN: usize = 16 << 10;
/// The maximum number of characters of an authorization server's text that an error message quotes.
/// Longer texts are truncated.
const MAX_TEXT: usize = 200;
/// The maximum lifetime of a token in seconds: ten years.
const A_LIFETIME: u64 = 10 * 365 * 24 * 60 * 60;

/// An access token. Its `Debug` output does not contain the token.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct AccessToken {
    pub(super) value: Arc<str>,
    /// The time from the token response until the token expires. `None` if the authorization server
    /// did not specify it.
    pub(super) lifetime: Option<Duration>,
}

/// The members of a successful token response. Each may be any JSON value, so that an error can
/// name the member whose type is wrong.
#[derive(Deserialize)]
struct Issued {
    #[serde(default)]
    access_token: Value,
    #[serde(default)]
    token_type: Value,
    #[serde(default)]
    expires_in: Value,
}

/// The members of an error response of the token endpoint.
#[derive(Deserialize)]
struct Refused {
    error: String,
    error_description: Option<String>,
}

// === impl AccessToken ===

impl AccessToken {
    /// Parses a successful response, as defined in [RFC 6749, section 5.1]. Errors never quote the
    /// response, because it may contain a token.
    ///
    /// [RFC 6749, section 5.1]: https://www.rfc-editor.org/rfc/rfc6749#section-5.1
    pub(super) fn parse(body: &[u8]) -> Result<Self, &'static str> {
        let Ok(Issued { access_token, token_type, expires_in }) = serde_json::from_slice(body)
        else {
            return Err("its answer is not a JSON object");
        };
        let Some(value) = access_token.as_str() else {
            return Err("its answer has no `access_token`");
        };
        if value.is_empty()
            || value.len() > MAX_TOKEN
            || !value.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err("the `access_token` in its answer cannot be sent in a header");
        }
        if !token_type.as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("bearer")) {
            return Err("the `token_type` in its answer is not `Bearer`");
        }
        let seconds = match &expires_in {
            Value::Null => return Ok(Self { value: value.into(), lifetime: None }),
            // Some servers send the number as a string.
            Value::String(text) => text.parse().ok(),
            number => number.as_u64(),
        };
        let seconds = seconds.ok_or("`expires_in` in its answer is not a number of seconds")?;
        let lifetime = Some(Duration::from_secs(seconds.min(A_LIFETIME)));
        Ok(Self { value: value.into(), lifetime })
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessToken").field("lifetime", &self.lifetime).finish_non_exhaustive()
    }
}

/// Returns the reason from a response that refuses a token, as defined in [RFC 6749, section 5.2].
/// Returns `None` if the response contains no reason.
///
/// [RFC 6749, section 5.2]: https://www.rfc-editor.org/rfc/rfc6749#section-5.2
pub(super) fn reason_of_refusal(body: &[u8]) -> Option<String> {
    let Refused { error, error_description } = serde_json::from_slice(body).ok()?;
    let texts = [Some(error), error_description].into_iter().flatten();
    Some(texts.map(|text| shortened(&text)).collect::<Vec<_>>().join(": "))
}

fn shortened(text: &str) -> String {
    let characters = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    characters.take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn issued_token_is_read() {
        let parse = |answer: Value| AccessToken::parse(answer.to_string().as_bytes());
        let token = |lifetime: Option<u64>| {
            Ok(AccessToken { value: "abc".into(), lifetime: lifetime.map(Duration::from_secs) })
        };
        let answer = |expires_in: Value| json!({ "access_token": "abc", "token_type": "bearer", "expires_in": expires_in });
        assert_eq!(parse(answer(json!(3600))), token(Some(3600)));
        assert_eq!(parse(answer(json!("3600"))), token(Some(3600)));
        assert_eq!(parse(answer(json!(0))), token(Some(0)));
        assert_eq!(parse(answer(json!(u64::MAX))), token(Some(A_LIFETIME)));
        assert_eq!(parse(json!({ "access_token": "abc", "token_type": "Bearer" })), token(None));
    }

    #[test]
    fn invalid_answer_is_an_error_that_does_not_quote_it() {
        for (answer, error) in [
            (json!("secret"), "its answer is not a JSON object"),
            (json!({}), "its answer has no `access_token`"),
            (json!({ "access_token": 7 }), "its answer has no `access_token`"),
            (
                json!({ "access_token": "se cret" }),
                "the `access_token` in its answer cannot be sent in a header",
            ),
            (
                json!({ "access_token": "x".repeat(MAX_TOKEN + 1) }),
                "the `access_token` in its answer cannot be sent in a header",
            ),
            (json!({ "access_token": "secret" }), "the `token_type` in its answer is not `Bearer`"),
            (
                json!({ "access_token": "secret", "token_type": "mac" }),
                "the `token_type` in its answer is not `Bearer`",
            ),
            (
                json!({ "access_token": "secret", "token_type": "Bearer", "expires_in": -1 }),
                "`expires_in` in its answer is not a number of seconds",
            ),
        ] {
            assert_eq!(AccessToken::parse(answer.to_string().as_bytes()), Err(error), "{answer}");
        }
    }

    #[test]
    fn reason_of_a_refusal_is_one_short_line() {
        let reason = |answer: Value| reason_of_refusal(answer.to_string().as_bytes());
        assert_eq!(reason(json!({ "error": "invalid_client" })).as_deref(), Some("invalid_client"));
        let described = json!({ "error": "invalid_scope", "error_description": "no\nscope" });
        assert_eq!(reason(described).as_deref(), Some("invalid_scope: no scope"));
        let long = json!({ "error": "x".repeat(1000) });
        assert_eq!(reason(long).map(|text| text.len()), Some(MAX_TEXT));
        assert_eq!(reason(json!({ "message": "no" })), None);
    }
}

//! The bearer token of a request, as defined in [RFC 6750, section 2.1].
//!
//! [RFC 6750, section 2.1]: https://www.rfc-editor.org/rfc/rfc6750#section-2.1

use axum::http::{HeaderMap, header::AUTHORIZATION};

use super::verification::Rejection;

/// The maximum length of a token in bytes.
const MAX_TOKEN: usize = 16 << 10;

/// Returns the token in the `Authorization` header. Tokens in the query or in the body of a request
/// are not accepted.
pub(super) fn token(headers: &HeaderMap) -> Result<&str, Rejection> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(Rejection::NoToken)?;
    if values.next().is_some() {
        return Err(Rejection::Malformed);
    }
    let value = value.to_str().map_err(|_| Rejection::Malformed)?;
    let (scheme, token) = value.split_once(' ').unwrap_or((value, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(Rejection::NoToken);
    }
    let token = token.trim_matches(' ');
    let is_token = token.bytes().all(|byte| byte.is_ascii_graphic());
    if token.is_empty() || token.len() > MAX_TOKEN || !is_token {
        return Err(Rejection::Malformed);
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn token_is_that_of_one_bearer_header() {
        let of = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_static(value));
            }
            token(&headers).map(str::to_owned).ok()
        };
        assert_eq!(of(&["Bearer abc"]).as_deref(), Some("abc"));
        assert_eq!(of(&["bearer  abc.def-~+/= "]).as_deref(), Some("abc.def-~+/="));
        for values in [
            &[][..],
            &["abc"],
            &["Bearer"],
            &["Bearer "],
            &["Basic abc"],
            &["Bearer abc def"],
            &["Bearer abc", "Bearer abc"],
        ] {
            assert_eq!(of(values), None, "{values:?}");
        }
    }
}

//! The values that a server proposes for the argument of a resource template.

use std::collections::HashMap;

use rmcp::model::{CompleteRequestParams, CompletionInfo, Reference};

/// A request for values of one argument of a resource template.
#[derive(Debug)]
pub(super) struct Completion {
    template: String,
    argument: String,
    /// The values of the other arguments, as far as the client knows them.
    others: HashMap<String, String>,
}

/// How an expression of a template is expanded ([RFC 6570, section 3.2.1]).
///
/// [RFC 6570, section 3.2.1]: https://www.rfc-editor.org/rfc/rfc6570#section-3.2.1
struct Operator {
    first: &'static str,
    separator: &'static str,
    is_named: bool,
    /// Whether reserved characters stay as they are.
    allows_reserved: bool,
}

// === impl Completion ===

impl Completion {
    /// The completion that is requested, if it is one of a resource template.
    pub(super) fn of(params: &CompleteRequestParams) -> Option<Self> {
        let Reference::Resource(resource) = &params.r#ref else { return None };
        let others = params.context.as_ref().and_then(|context| context.arguments.clone());
        Some(Self {
            template: resource.uri.clone(),
            argument: params.argument.name.clone(),
            others: others.unwrap_or_default(),
        })
    }

    /// Drops the values with which the template is a resource that is not permitted, and
    /// the total, which counts such values too.
    pub(super) fn retain(&self, info: &mut CompletionInfo, permits: impl Fn(&str) -> bool) {
        info.total = None;
        info.values.retain(|value| {
            // Some servers percent-encode values, and some do not.
            [true, false].iter().all(|&encodes| permits(&self.expand(value, encodes)))
        });
    }

    /// The URI with this value; arguments that are not known stay as they are written.
    fn expand(&self, value: &str, encodes: bool) -> String {
        let mut uri = String::with_capacity(self.template.len() + value.len());
        let mut rest = self.template.as_str();
        while let Some((literal, after)) = rest.split_once('{') {
            uri.push_str(literal);
            let Some((expression, after)) = after.split_once('}') else {
                rest = &rest[literal.len()..];
                break;
            };
            self.expand_expression(expression, value, encodes, &mut uri);
            rest = after;
        }
        uri.push_str(rest);
        uri
    }

    fn expand_expression(&self, expression: &str, value: &str, encodes: bool, uri: &mut String) {
        let (operator, names) = Operator::of(expression);
        let names = names.split(',').map(|name| {
            let name = name.split_once(':').map_or(name, |(name, _)| name);
            name.strip_suffix('*').unwrap_or(name)
        });
        let known = names.filter_map(|name| {
            let is_asked = name == self.argument;
            let value = if is_asked { value } else { self.others.get(name)? };
            Some((name, value))
        });
        let mut before = operator.first;
        let mut is_known = false;
        for (name, value) in known {
            is_known = true;
            uri.push_str(before);
            before = operator.separator;
            if operator.is_named {
                uri.push_str(name);
                uri.push('=');
            }
            if encodes && !operator.allows_reserved {
                encode(value, uri);
            } else {
                uri.push_str(value);
            }
        }
        if !is_known {
            uri.push('{');
            uri.push_str(expression);
            uri.push('}');
        }
    }
}

// === impl Operator ===

impl Operator {
    /// The operator of an expression, and the rest of it.
    fn of(expression: &str) -> (Self, &str) {
        let operator = |first, separator, is_named, allows_reserved| Self {
            first,
            separator,
            is_named,
            allows_reserved,
        };
        let rest = expression.get(1..).unwrap_or_default();
        match expression.as_bytes().first() {
            Some(b'+') => (operator("", ",", false, true), rest),
            Some(b'#') => (operator("#", ",", false, true), rest),
            Some(b'.') => (operator(".", ".", false, false), rest),
            Some(b'/') => (operator("/", "/", false, false), rest),
            Some(b';') => (operator(";", ";", true, false), rest),
            Some(b'?') => (operator("?", "&", true, false), rest),
            Some(b'&') => (operator("&", "&", true, false), rest),
            _ => (operator("", ",", false, false), expression),
        }
    }
}

/// Adds a text in which only unreserved characters stay as they are.
fn encode(text: &str, uri: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            uri.push(byte.into());
        } else {
            uri.push('%');
            uri.push(DIGITS[usize::from(byte >> 4)].into());
            uri.push(DIGITS[usize::from(byte & 15)].into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_expanded_with_what_is_known() {
        let others = HashMap::from([("b".to_owned(), "x/y".to_owned())]);
        let expand = |template: &str, value: &str| {
            let (template, argument) = (template.to_owned(), "a".to_owned());
            Completion { template, argument, others: others.clone() }.expand(value, true)
        };
        for (template, expected) in [
            ("db://{a}/rows", "db://1%202/rows"),
            ("file:///{+a}", "file:///1 2"),
            ("file:///{a}/{b}/{c}", "file:///1%202/x%2Fy/{c}"),
            ("x://h{/a,b}{.a}{#b}", "x://h/1%202/x%2Fy.1%202#x/y"),
            ("x://h{?a,c,b}{&a*}", "x://h?a=1%202&b=x%2Fy&a=1%202"),
            ("x://h{;b:3}", "x://h;b=x%2Fy"),
            ("x://{a}/{", "x://1%202/{"),
            ("x://plain", "x://plain"),
        ] {
            assert_eq!(expand(template, "1 2"), expected, "{template}");
        }
    }
}

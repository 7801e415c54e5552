//! Removes values from completion results that would reveal hidden resources.

use std::collections::{HashMap, HashSet};

use rmcp::model::{CompleteRequestParams, CompletionInfo, Reference};

use crate::{
    pattern::{Budget, Part, Selection, TextSet},
    uri::Readings,
};

/// Maximum number of comparison steps for the completion values in one reply. Values that cannot be
/// checked within the limit are removed from the reply.
const MAX_COMPARISON_STEPS: usize = 500_000;
/// Placeholder in a URI for any text without a `/`. It consists only of lower-case letters, so that
/// URI normalization does not change it.
const SEGMENT: &str = "zzsegmentzz";
/// Placeholder in a URI for any text, including text with a `/`.
const ANYTHING: &str = "zzanythingzz";

/// A request to complete an argument of a resource template.
#[derive(Debug)]
pub(super) struct Completion {
    template: String,
    argument: String,
    /// The values of the template's other arguments by name. The client may send any values.
    others: HashMap<String, String>,
}

/// The expansion rules of an operator in a template expression, for example `+` in `{+path}` ([RFC
/// 6570, section 3.2.1]).
///
/// [RFC 6570, section 3.2.1]: https://www.rfc-editor.org/rfc/rfc6570#section-3.2.1
struct Operator {
    first: &'static str,
    separator: &'static str,
    is_named: bool,
    /// `true` if the operator keeps reserved characters, such as `/`. `false` if it percent-encodes
    /// them.
    allows_reserved: bool,
}

// === impl Completion ===

impl Completion {
    /// Reads the parameters of a completion request. Returns `None` if the request completes an
    /// argument of a prompt.
    pub(super) fn of(params: &CompleteRequestParams) -> Option<Self> {
        let Reference::Resource(resource) = &params.r#ref else { return None };
        let others = params.context.as_ref().and_then(|context| context.arguments.clone());
        Some(Self {
            template: resource.uri.clone(),
            argument: params.argument.name.clone(),
            others: others.unwrap_or_default(),
        })
    }

    /// Removes each completion value with which the template could expand to the URI of a hidden
    /// resource. Also removes the `total`, because it would reveal the number of removed values.
    ///
    /// Keeps a value only if the rules allow all URIs to which the template can expand with this
    /// value and any values of the other arguments. The other values in the request are not
    /// sufficient for this check, because the client can later send different ones. An expression
    /// that percent-encodes `/` can expand to any text without `/`. Each other expression can
    /// expand to any text.
    pub(super) fn retain(
        &self,
        info: &mut CompletionInfo,
        resources: &Selection,
        denied: &HashSet<String>,
        permits: impl Fn(&str) -> bool,
    ) {
        info.total = None;
        let mut budget = Budget::new(MAX_COMPARISON_STEPS);
        info.values.retain(|value| {
            // Check the value with and without percent-encoding, because servers differ in this.
            let [encoded, plain] = [true, false].map(|encodes| self.pattern(value, encodes));
            let plain = (plain != encoded).then_some(plain);
            [true, false].iter().all(|&encodes| permits(&self.expand(value, encodes)))
                && [Some(encoded), plain].into_iter().flatten().all(|uri| {
                    !has_wildcard(&uri)
                        || (self.is_comparable(value)
                            && permits_each(&uri, resources, denied, &mut budget))
                })
        });
    }

    /// Returns `true` if the URIs to which the template expands with this value can be compared
    /// with the rules. For this, the template must begin with a literal scheme, and neither the
    /// template nor the value may contain a placeholder.
    fn is_comparable(&self, value: &str) -> bool {
        let scheme = self.template.split('{').next().unwrap_or_default();
        let has_wildcard = |text: &str| has_wildcard(&text.to_ascii_lowercase());
        scheme.contains(':') && !has_wildcard(&self.template) && !has_wildcard(value)
    }

    /// Expands the template with `value` for the completed argument, and with placeholders for all
    /// other arguments. If `encodes` is `true`, percent-encodes the value.
    fn pattern(&self, value: &str, encodes: bool) -> String {
        self.expand_each(|expression, uri| {
            let (operator, variables) = Operator::of(expression);
            let wildcard = operator.wildcard();
            let is_completed = |variable: &&str| name(variable) == self.argument;
            let variables: Vec<_> = variables.split(',').collect();
            let Some(index) = variables.iter().position(is_completed) else {
                return uri.push_str(wildcard);
            };
            uri.push_str(operator.first);
            if index > 0 {
                uri.push_str(wildcard);
            }
            if operator.is_named {
                uri.push_str(&self.argument);
                uri.push('=');
            }
            match prefix_length(variables[index]) {
                Some(length) => {
                    let start: String = value.chars().take(length).collect();
                    operator.push(&start, encodes, uri);
                    uri.push_str(wildcard);
                }
                None => operator.push(value, encodes, uri),
            }
            if index + 1 < variables.len() {
                uri.push_str(wildcard);
            }
        })
    }

    /// Expands the template with `value` for the completed argument, and with the client's values
    /// for the other arguments. Keeps an expression as it is if all of its arguments are unknown.
    fn expand(&self, value: &str, encodes: bool) -> String {
        self.expand_each(|expression, uri| self.expand_expression(expression, value, encodes, uri))
    }

    /// Returns the template with all expressions expanded. `expand` receives the text between the
    /// braces of an expression, and appends the expansion to the URI.
    fn expand_each(&self, expand: impl Fn(&str, &mut String)) -> String {
        let mut uri = String::with_capacity(2 * self.template.len());
        let mut rest = self.template.as_str();
        while let Some((literal, after)) = rest.split_once('{') {
            uri.push_str(literal);
            let Some((expression, after)) = after.split_once('}') else {
                rest = &rest[literal.len()..];
                break;
            };
            expand(expression, &mut uri);
            rest = after;
        }
        uri.push_str(rest);
        uri
    }

    fn expand_expression(&self, expression: &str, value: &str, encodes: bool, uri: &mut String) {
        let (operator, names) = Operator::of(expression);
        let known = names.split(',').map(name).filter_map(|name| {
            let is_completed = name == self.argument;
            let value = if is_completed { value } else { self.others.get(name)? };
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
            operator.push(value, encodes, uri);
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
    /// Splits a template expression, such as `+path`, into its operator and its list of variables.
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

    /// Appends a value to `uri`. Percent-encodes the value if `encodes` is `true` and the operator
    /// does not allow reserved characters.
    fn push(&self, value: &str, encodes: bool, uri: &mut String) {
        if encodes && !self.allows_reserved {
            encode(value, uri);
        } else {
            uri.push_str(value);
        }
    }

    /// Returns the placeholder that stands for all possible expansions of an expression with this
    /// operator, including those of lists of values.
    fn wildcard(&self) -> &'static str {
        if self.allows_reserved || self.separator == "/" { ANYTHING } else { SEGMENT }
    }
}

/// Returns the name of a template variable without its modifiers, for example `name` for `name:3`.
fn name(variable: &str) -> &str {
    let name = variable.split_once(':').map_or(variable, |(name, _)| name);
    name.strip_suffix('*').unwrap_or(name)
}

/// Returns the maximum length in the prefix modifier of a variable, for example 3 for `name:3`.
/// Returns `None` if the variable has no prefix modifier.
fn prefix_length(variable: &str) -> Option<usize> {
    variable.split_once(':')?.1.parse().ok()
}

fn has_wildcard(uri: &str) -> bool {
    uri.contains(SEGMENT) || uri.contains(ANYTHING)
}

/// Returns `true` if the rules allow all URIs that match `pattern`, in all of their equivalent
/// spellings. A URI matches if it results from replacing each placeholder with a text. `denied`
/// contains the denied URIs in their canonical spellings.
fn permits_each(
    pattern: &str,
    resources: &Selection,
    denied: &HashSet<String>,
    budget: &mut Budget,
) -> bool {
    let Some(readings) = Readings::of(pattern) else { return false };
    let may_be_denied =
        |uris: &TextSet, budget: &mut Budget| denied.iter().any(|uri| uris.may_have(uri, budget));
    let forms = [pattern].into_iter().chain(readings.forms.iter().map(String::as_str));
    let mut forms = forms.map(uris);
    let mut others = readings.others.iter().map(|other| uris(other));
    forms.all(|uris| resources.selects_each(&uris, budget) && !may_be_denied(&uris, budget))
        && !others.any(|uris| resources.may_deny(&uris, budget) || may_be_denied(&uris, budget))
}

/// Returns the set of all URIs that match `pattern`: those that result from replacing each
/// placeholder with a text.
fn uris(pattern: &str) -> TextSet {
    let mut uris = TextSet::default();
    let mut rest = pattern;
    if let Some(scheme) = pattern.find("://") {
        let (before, after) = pattern.split_at(scheme + 3);
        let end = after.find(['/', '?', '#']).unwrap_or(after.len());
        // An authority has several spellings, for example with a user name or port. If the
        // authority contains a placeholder, the set therefore contains all authorities.
        let authority = match &after[..end] {
            authority if authority.contains(ANYTHING) => Some(Part::Anything),
            authority if authority.contains(SEGMENT) => Some(Part::Segment),
            _ => None,
        };
        if let Some(authority) = authority {
            uris.push(Part::Text(before.to_owned()));
            uris.push(authority);
            rest = &after[end..];
        }
    }
    push_parts(rest, &mut uris);
    uris
}

fn push_parts(mut rest: &str, uris: &mut TextSet) {
    let next = |rest: &str| {
        let wildcards = [(SEGMENT, Part::Segment), (ANYTHING, Part::Anything)];
        let found = wildcards
            .into_iter()
            .filter_map(|(wildcard, part)| Some((rest.find(wildcard)?, wildcard.len(), part)));
        found.min_by_key(|(at, ..)| *at)
    };
    while let Some((at, length, part)) = next(rest) {
        uris.push(Part::Text(rest[..at].to_owned()));
        uris.push(part);
        rest = &rest[at + length..];
    }
    uris.push(Part::Text(rest.to_owned()));
}

/// Percent-encodes all characters of `text` except for letters, digits, `-`, `.`, `_` and `~`, and
/// appends the result to `uri`.
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
    fn template_is_expanded_with_known_arguments() {
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

//! The W3C trace context, which identifies a position in a distributed trace.

use std::fmt::{self, Write as _};

use rmcp::model::RequestMetaObject;

/// The maximum length of a `tracestate` or `baggage` header in bytes, as in the W3C Baggage
/// specification.
const MAX_LIST: usize = 8192;
/// The maximum number of members in a `tracestate` header, as in the W3C Trace Context
/// specification.
const MAX_MEMBERS: usize = 32;
/// A bit mask of the defined trace flags: `sampled`, and `random-trace-id` from Trace Context Level
/// 2.
const FLAGS: u8 = 0b11;

/// A position in a distributed trace, with the fields of the `traceparent` and `tracestate` headers
/// of [W3C Trace Context].
///
/// A `TraceContext` is always valid. Parsing drops a malformed `tracestate`, and all flags except
/// `sampled` and `random`.
///
/// [W3C Trace Context]: https://www.w3.org/TR/trace-context/
///
/// # Examples
///
/// ```
/// use mcp_composite::trace::TraceContext;
///
/// let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let parent = TraceContext::parse(text, Some("vendor=1")).unwrap();
/// let child = parent.child();
/// assert_eq!(child.trace_id(), parent.trace_id());
/// assert_ne!(child.span_id(), parent.span_id());
/// assert_eq!((child.is_sampled(), child.state()), (true, Some("vendor=1")));
/// assert_eq!(TraceContext::parse("00-1-2-3", None), None);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct TraceContext {
    trace: u128,
    span: u64,
    flags: u8,
    state: Option<Box<str>>,
}

// === impl TraceContext ===

impl TraceContext {
    /// Creates a trace context without a `tracestate`. Returns `None` if the trace id or the span
    /// id is zero.
    #[must_use]
    pub fn new(trace_id: [u8; 16], span_id: [u8; 8], flags: u8) -> Option<Self> {
        let (trace, span) = (u128::from_be_bytes(trace_id), u64::from_be_bytes(span_id));
        let is_valid = trace != 0 && span != 0;
        is_valid.then_some(Self { trace, span, flags: flags & FLAGS, state: None })
    }

    /// Parses the values of a `traceparent` header and its `tracestate` header. Returns `None` if
    /// the `traceparent` is malformed.
    ///
    /// For a later version than `00`, only the fields of version `00` are parsed ([section 4.3]).
    ///
    /// [section 4.3]: https://www.w3.org/TR/trace-context/#versioning-of-traceparent
    #[must_use]
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let mut fields = traceparent.splitn(5, '-');
        let mut field = |digits| fields.next().filter(|field| is_hex(field, digits));
        let (version, trace, span, flags) = (field(2)?, field(32)?, field(16)?, field(2)?);
        if version == "ff" || (version == "00" && fields.next().is_some()) {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok()?;
        let span = u64::from_str_radix(span, 16).ok()?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        let context = Self::new(trace.to_be_bytes(), span.to_be_bytes(), flags)?;
        Some(match tracestate {
            Some(state) => context.with_state(state),
            None => context,
        })
    }

    /// Sets the `tracestate`, which contains data of tracing vendors. An empty or malformed `state`
    /// removes it.
    #[must_use]
    pub fn with_state(self, state: &str) -> Self {
        Self { state: is_state(state).then(|| state.into()), ..self }
    }

    /// Returns a child of this trace context: a copy with a new, random span id.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { span: fastrand::u64(1..), ..self.clone() }
    }

    /// Returns the id of the trace.
    #[must_use]
    pub const fn trace_id(&self) -> [u8; 16] {
        self.trace.to_be_bytes()
    }

    /// Returns the id of the span, which identifies the position in the trace.
    #[must_use]
    pub const fn span_id(&self) -> [u8; 8] {
        self.span.to_be_bytes()
    }

    /// Returns the trace flags as a bit mask: bit `1` is `sampled`, and bit `2` is `random`.
    #[must_use]
    pub const fn flags(&self) -> u8 {
        self.flags
    }

    /// Returns `true` if the `sampled` flag is set. The flag means that the caller may have
    /// recorded the trace.
    #[must_use]
    pub const fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }

    /// Returns the `tracestate`, if there is one.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Formats the trace context as the value of a `traceparent` header.
    #[must_use]
    pub fn traceparent(&self) -> String {
        let mut text = String::with_capacity(55);
        // Writing to a string does not fail.
        let _ = write!(text, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags);
        text
    }

    pub(super) fn read(meta: &RequestMetaObject) -> Option<Self> {
        Self::parse(meta.get_traceparent()?, meta.get_tracestate())
    }

    pub(super) fn write(&self, meta: &mut RequestMetaObject) {
        meta.set_traceparent(self.traceparent());
        match self.state() {
            Some(state) => meta.set_tracestate(state),
            None => drop(meta.remove("tracestate")),
        }
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceContext")
            .field("traceparent", &self.traceparent())
            .field("tracestate", &self.state)
            .finish()
    }
}

/// Returns `true` if `text` consists of `digits` lowercase hexadecimal digits.
fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns `true` if `text` is a valid `tracestate` with at least one member ([section 3.3.1]).
///
/// [section 3.3.1]: https://www.w3.org/TR/trace-context/#tracestate-header-field-values
fn is_state(text: &str) -> bool {
    let mut members = 0;
    let is_fine = text.len() <= MAX_LIST
        && text.split(',').map(trim).filter(|member| !member.is_empty()).all(|member| {
            members += 1;
            member.split_once('=').is_some_and(|(key, value)| is_key(key) && is_value(value))
        });
    is_fine && (1..=MAX_MEMBERS).contains(&members)
}

/// Returns `true` if `key` is a valid key of a `tracestate` member: `vendor` or `tenant@vendor`.
fn is_key(key: &str) -> bool {
    let is_allowed =
        |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    key.len() <= 256
        && key.bytes().all(is_allowed)
        && key.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit())
        && key.bytes().filter(|byte| *byte == b'@').count() <= 1
}

fn is_value(value: &str) -> bool {
    let is_allowed = |byte| matches!(byte, b' '..=b'~') && byte != b'=';
    (1..=256).contains(&value.len()) && value.bytes().all(is_allowed)
}

/// Returns `true` if `text` is a valid `baggage` header ([section 3.3.1]): a list of members such
/// as `key=value`, with optional properties.
///
/// [section 3.3.1]: https://www.w3.org/TR/baggage/#definition
pub(super) fn is_baggage(text: &str) -> bool {
    let is_allowed = |byte| matches!(byte, b'\t' | b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    text.len() <= MAX_LIST
        && text.bytes().all(is_allowed)
        && text.split(',').all(|member| {
            let (key, _) =
                member.split(';').next().and_then(|pair| pair.split_once('=')).unwrap_or_default();
            let key = trim(key);
            !key.is_empty()
                && !key.contains([
                    ' ', '\t', '(', ')', '/', ':', '<', '>', '?', '@', '[', ']', '{', '}',
                ])
        })
}

fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

#[cfg(test)]
mod tests;

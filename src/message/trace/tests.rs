use proptest::prelude::*;
use serde_json::json;

use super::{TraceContext, is_baggage, is_state};
use crate::message::Context;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn context(meta: serde_json::Value) -> Context {
    let mut context = Context::default();
    *context.meta_mut() = serde_json::from_value(meta).unwrap();
    context
}

#[test]
fn trace_context_is_written_as_it_was_read() {
    let read = TraceContext::parse(PARENT, Some("congo=t61rcWkgMzE,tenant@rojo=00f0")).unwrap();
    assert_eq!(read.traceparent(), PARENT);
    assert_eq!(read.state(), Some("congo=t61rcWkgMzE,tenant@rojo=00f0"));
    assert!(read.is_sampled());
}

#[test]
fn malformed_traceparent_is_rejected() {
    let malformed = [
        "",
        "00-1-2-3",
        // A digit that is not hexadecimal, uppercase digits, and a sign.
        "00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        // Ids of zero, which are invalid.
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        // Too long, too short, and an invalid version.
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
        " 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ];
    for text in malformed {
        assert_eq!(TraceContext::parse(text, None), None, "{text}");
    }
}

#[test]
fn known_fields_of_a_later_version_are_parsed() {
    let later = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff-more-of-it";
    let read = TraceContext::parse(later, None).unwrap();
    let known = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03";
    assert_eq!(read.traceparent(), known);
}

#[test]
fn malformed_tracestate_is_dropped_alone() {
    let longest = vec!["a=1"; 32].join(",");
    for state in ["a=1", "a=1,,b=2", "a=1 , b=2", "1a=x y", &longest] {
        assert!(is_state(state), "{state}");
    }
    let too_many = vec!["a=1"; 33].join(",");
    for state in ["", ",", "a", "a=", "=1", "A=1", "a=1=2", "a@b@c=1", "_a=1", "a=é", &too_many] {
        assert!(!is_state(state), "{state}");
        let read = TraceContext::parse(PARENT, Some(state)).unwrap();
        assert_eq!((read.traceparent().as_str(), read.state()), (PARENT, None));
    }
}

#[test]
fn baggage_is_validated_as_members_with_properties() {
    for baggage in ["a=1", "userId=alice,serverNode=DF%2028;meta=1;flag,is = false"] {
        assert!(is_baggage(baggage), "{baggage}");
    }
    for baggage in ["", "a", "=1", "a=1,", "a b=1", "a=\"1\"", "a=1\n", "a=é", &"a".repeat(9000)] {
        assert!(!is_baggage(baggage), "{baggage}");
    }
}

#[test]
fn malformed_trace_fields_of_a_request_are_removed() {
    let mut malformed = context(json!({
        "traceparent": "00-1-2-3", "tracestate": "a=1", "baggage": 7, "com.example/mine": 1,
    }));
    assert_eq!(malformed.trace(), None);
    malformed.set_trace(None);
    assert_eq!(serde_json::to_value(malformed.meta()).unwrap(), json!({ "com.example/mine": 1 }));

    let mut replaced =
        context(json!({ "traceparent": "x", "tracestate": "a=1", "baggage": "b=2" }));
    replaced.set_trace(TraceContext::parse(PARENT, None).as_ref());
    let expected = json!({ "traceparent": PARENT, "baggage": "b=2" });
    assert_eq!(serde_json::to_value(replaced.meta()).unwrap(), expected);
}

proptest! {
    #[test]
    fn any_client_input_is_parsed_without_a_panic(parent in ".*", state in ".*") {
        let parents = [parent.clone(), format!("00-{parent}"), format!("{PARENT}{parent}")];
        for parent in parents {
            if let Some(read) = TraceContext::parse(&parent, Some(&state)) {
                let again = TraceContext::parse(&read.traceparent(), read.state());
                prop_assert_eq!(again, Some(read));
            }
        }
    }

    #[test]
    fn child_spans_share_the_trace_and_have_distinct_ids(
        trace in 1..=u128::MAX, span in 1..=u64::MAX, flags in 0..=3_u8,
    ) {
        let parent = TraceContext::new(trace.to_be_bytes(), span.to_be_bytes(), flags).unwrap();
        let [one, other] = [parent.child(), parent.child()];
        prop_assert_eq!(one.trace_id(), parent.trace_id());
        prop_assert_eq!(one.flags(), flags);
        prop_assert!(one.span_id() != parent.span_id() && one.span_id() != other.span_id());
    }
}

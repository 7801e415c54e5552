use std::fmt::Debug;

use rmcp::{RoleServer, transport::Transport};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, split};

use super::{decode::Decode, *};
use crate::adapter::value_count::MAX_VALUES;

type Near<Role> =
    LineTransport<Role, tokio::io::ReadHalf<DuplexStream>, tokio::io::WriteHalf<DuplexStream>>;

fn pipe<Role: Decode>() -> (Near<Role>, DuplexStream) {
    let (near, far) = tokio::io::duplex(64 << 20);
    let (reader, writer) = split(near);
    (LineTransport::new(reader, writer), far)
}

/// Receives all messages in the text. Returns the messages and the transport's answers to them, as
/// JSON.
async fn received<Role: Decode>(text: &str) -> (Vec<Value>, Vec<Value>) {
    let (mut near, mut far) = pipe::<Role>();
    far.write_all(text.as_bytes()).await.unwrap();
    far.shutdown().await.unwrap();
    let mut messages = Vec::new();
    while let Some(message) = near.receive().await {
        messages.push(serde_json::to_value(message).unwrap());
    }
    near.close().await.unwrap();
    drop(near);
    let mut replies = String::new();
    far.read_to_string(&mut replies).await.unwrap();
    (messages, replies.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn ping(id: u64) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "ping" })
}

fn many_values() -> Value {
    json!(vec![0; MAX_VALUES])
}

#[tokio::test]
async fn messages_are_received_and_other_lines_are_skipped() {
    let (one, two) = (ping(1), ping(2));
    let text = format!("{one}\r\n\n  \nno JSON\n\u{feff}{two}\n{{\"jsonrpc\":\"2.0\"");
    assert_eq!(received::<RoleServer>(&text).await, (vec![one, two], vec![]));
}

#[tokio::test]
async fn malformed_message_is_answered_with_an_error() {
    let text = format!("{}\n{}\n", json!({ "jsonrpc": "2.0", "id": 1 }), ping(2));
    let (messages, replies) = received::<RoleServer>(&text).await;
    assert_eq!(messages, [ping(2)]);
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0]["error"]["code"], -32600);
}

#[tokio::test]
async fn notification_of_another_protocol_is_ignored() {
    let text =
        format!("{}\n{}\n", json!({ "jsonrpc": "2.0", "method": "$/exit", "params": 5 }), ping(2));
    assert_eq!(received::<RoleServer>(&text).await, (vec![ping(2)], vec![]));
}

#[tokio::test]
async fn request_beyond_a_limit_is_rejected() {
    let call = json!({
        "jsonrpc": "2.0", "id": "a", "method": "tools/call",
        "params": { "name": "x", "arguments": { "list": many_values() } },
    });
    let (messages, replies) = received::<RoleServer>(&format!("{call}\n{}\n", ping(2))).await;
    assert_eq!(messages, [ping(2)]);
    let message = "the peer sent a request with more than 262144 JSON values";
    let error = json!({ "code": -32600, "message": message });
    assert_eq!(replies, [json!({ "jsonrpc": "2.0", "id": "a", "error": error })]);
}

#[cfg(feature = "stdio")]
#[tokio::test]
async fn response_beyond_a_limit_is_an_error() {
    let many = json!({ "jsonrpc": "2.0", "id": 7, "result": { "content": many_values() } });
    let long = json!({ "jsonrpc": "2.0", "id": 8, "result": "x".repeat(16 << 20) });
    for (response, id, message) in [
        (many, 7, "backend `far` sent an answer with more than 262144 JSON values"),
        (long, 8, "backend `far` sent an answer of more than 16 MiB"),
    ] {
        let (near, mut far) = pipe::<rmcp::RoleClient>();
        let mut near = near.peer("backend `far`".to_owned());
        far.write_all(format!("{response}\n").as_bytes()).await.unwrap();
        let error = serde_json::to_value(near.receive().await.unwrap()).unwrap();
        let expected = json!({ "code": -32603, "message": message });
        assert_eq!(error, json!({ "jsonrpc": "2.0", "id": id, "error": expected }));
    }
}

#[cfg(feature = "stdio")]
#[tokio::test]
async fn result_with_too_many_questions_is_an_error() {
    let question = json!({ "method": "roots/list" });
    for (count, is_error) in [(32, false), (33, true)] {
        let questions: serde_json::Map<_, _> =
            (0..count).map(|number: u32| (number.to_string(), question.clone())).collect();
        let result = json!({ "resultType": "input_required", "inputRequests": questions });
        let response = json!({ "jsonrpc": "2.0", "id": 7, "result": result });
        let (near, mut far) = pipe::<rmcp::RoleClient>();
        let mut near = near.peer("backend `far`".to_owned());
        far.write_all(format!("{response}\n").as_bytes()).await.unwrap();
        let received = serde_json::to_value(near.receive().await.unwrap()).unwrap();
        let message =
            "backend `far` requested input, which was rejected: too many questions at once";
        let error = json!({ "code": -32603, "message": message });
        let expected = json!({ "jsonrpc": "2.0", "id": 7, "error": error });
        assert_eq!(received, if is_error { expected } else { response });
    }
}

#[tokio::test]
async fn reply_is_sent_although_receiving_is_interrupted() {
    let (near, mut far) = tokio::io::duplex(16);
    let (reader, writer) = split(near);
    let mut near = LineTransport::<RoleServer, _, _>::new(reader, writer);
    let text = format!("{}\n{}\n", json!({ "jsonrpc": "2.0", "id": 1 }), ping(2));
    let writing = async {
        let (mut reader, mut writer) = split(&mut far);
        let mut replies = vec![0; 64];
        let writing = writer.write_all(text.as_bytes());
        let (written, read) = tokio::join!(writing, reader.read_exact(&mut replies));
        written.unwrap();
        read.unwrap();
        String::from_utf8(replies).unwrap()
    };
    let receiving = async {
        loop {
            // Polled once, then dropped.
            if let Some(message) = near.receive().now_or_never() {
                break message.unwrap();
            }
            tokio::task::yield_now().await;
        }
    };
    let (replies, message) = tokio::join!(writing, receiving);
    assert_eq!(serde_json::to_value(message).unwrap(), ping(2));
    assert!(replies.contains("-32600"), "{replies}");
}

/// Asserts that both decoders return the same messages, and that the fast one decodes `decoded` of
/// them.
fn assert_same<Role: Decode>(texts: &[String], decoded: usize)
where
    RxJsonRpcMessage<Role>: Debug,
{
    let mut fast = 0;
    for text in texts {
        let expected = serde_json::from_str::<RxJsonRpcMessage<Role>>(text);
        if let Some(message) = Role::decode(text.as_bytes(), "") {
            fast += 1;
            assert_eq!(format!("{message:?}"), format!("{:?}", expected.unwrap()), "{text}");
        }
    }
    assert_eq!(fast, decoded);
}

/// Returns copies of the texts, each with one byte changed.
fn changed(texts: &[String]) -> Vec<String> {
    let replacements = [b'"', b'{', b'}', b'[', b',', b':', b'0', b'n', b' '];
    let mut changed = Vec::new();
    for text in texts {
        for place in 0..text.len() {
            for replacement in replacements {
                let mut bytes = text.clone().into_bytes();
                bytes[place] = replacement;
                changed.extend(String::from_utf8(bytes));
            }
        }
    }
    changed
}

#[test]
fn calls_are_decoded_as_by_rmcp() {
    let call = |params: Value| {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        call.to_string()
    };
    let calls = [
        call(json!({ "name": "x" })),
        call(json!({ "name": "x", "arguments": { "n": [1, -2, 3.5, u64::MAX, null, "\u{e9}"] } })),
        call(json!({ "name": "x", "_meta": { "progressToken": "a", "own": [{}] }, "more": 1 })),
        call(json!({
            "name": "x", "requestState": "s",
            "inputResponses": { "a": { "action": "accept", "content": { "b": true } } },
        })),
    ];
    assert_same::<RoleServer>(&calls, calls.len());
    let others = [
        ping(1).to_string(),
        call(json!({})),
        call(json!({ "name": 1 })),
        r#"{"jsonrpc":"1.0","id":1,"method":"tools/call","params":{"name":"x"}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"x"}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"},"result":{}}"#
            .to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#.to_owned(),
    ];
    assert_same::<RoleServer>(&others, 0);
    let changed = changed(&calls);
    let decoded = changed.iter().filter(|text| RoleServer::decode(text.as_bytes(), "").is_some());
    let decoded = decoded.count();
    assert!(decoded > 100, "{decoded}");
    assert_same::<RoleServer>(&changed, decoded);
}

#[cfg(feature = "remote")]
#[test]
fn results_of_calls_are_decoded_as_by_rmcp() {
    use rmcp::RoleClient;

    let response =
        |result: Value| json!({ "jsonrpc": "2.0", "id": 1, "result": result }).to_string();
    let form = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    let question = json!({ "mode": "form", "message": "?", "requestedSchema": form });
    let question = json!({ "method": "elicitation/create", "params": question });
    let results = [
        response(json!({ "content": [] })),
        response(json!({ "content": [{ "type": "text", "text": "a" }], "isError": true })),
        response(json!({ "structuredContent": null, "_meta": { "a": 1 } })),
        response(json!({ "resultType": "complete", "content": [], "structuredContent": [1.5] })),
        response(json!({ "resultType": "input_required", "inputRequests": { "a": question } })),
        response(json!({ "resultType": "input_required", "requestState": "s" })),
    ];
    assert_same::<RoleClient>(&results, results.len());
    let others = [
        response(json!({})),
        response(json!({ "_meta": {} })),
        response(json!({ "tools": [] })),
        response(json!({ "content": [], "messages": [] })),
        response(json!({ "content": {} })),
        response(json!({ "resultType": "task", "content": [] })),
        response(json!({ "resultType": "complete" })),
        ping(1).to_string(),
        json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": 1, "message": "" } }).to_string(),
    ];
    assert_same::<RoleClient>(&others, 0);
    let changed = changed(&results);
    let decoded = changed.iter().filter(|text| RoleClient::decode(text.as_bytes(), "").is_some());
    let decoded = decoded.count();
    assert!(decoded > 100, "{decoded}");
    assert_same::<RoleClient>(&changed, decoded);
}

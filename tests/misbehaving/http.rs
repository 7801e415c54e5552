//! The same server over streamable HTTP, without sessions and without an SDK.

use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use serde_json::{Value, json};

use crate::{
    Request, Server,
    fault::{self, Wire},
    hostile,
};

/// Listens on this port, or on any free port if it is 0, and prints its address to standard output.
pub(crate) fn serve(server: &Arc<Server>, port: u16) {
    let listener = match TcpListener::bind(("127.0.0.1", port)) {
        Ok(listener) => listener,
        Err(error) => crate::die(&format!("cannot listen on port {port}: {error}")),
    };
    let address = listener.local_addr().expect("a listener knows its address");
    crate::send_line(&format!("http://{address}/mcp"));
    let server = Arc::clone(server);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let server = Arc::clone(&server);
            // A client that disconnects ends its thread and nothing else.
            thread::spawn(move || drop(attend(&server, stream)));
        }
    });
}

/// Answers the requests of a connection, until it is closed.
fn attend(server: &Server, stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BufReader::new(stream.try_clone()?);
    let mut reply = Reply { stream, is_stream: false, is_over: false, has_session: false };
    while !reply.is_over {
        let Some((method, body)) = read(&mut input)? else { break };
        if method == "GET" && server.is_brief() {
            hostile::note(1);
            reply.brief_stream();
            continue;
        }
        if method != "POST" {
            // It sends no messages of its own.
            reply.status("405 Method Not Allowed");
            continue;
        }
        match serde_json::from_slice::<Value>(&body) {
            Ok(message) => answer(server, &message, &mut reply),
            Err(_) => reply.status("400 Bad Request"),
        }
    }
    Ok(())
}

fn answer(server: &Server, message: &Value, reply: &mut Reply) {
    server.write_log(message);
    let params = message["params"].clone();
    let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) else {
        if message["method"] == "notifications/cancelled" {
            thread::sleep(server.slow_to_hear);
            server.tools.note_cancellation(&params["requestId"]);
        }
        return reply.status("202 Accepted");
    };
    let request = Request { id: id.clone(), method: method.to_owned(), params };
    if method == "tools/call" {
        server.tools.note_call();
        if request.params["name"] == "fault" {
            return fault::answer(&request, &server.tools, reply);
        }
        if request.params["name"] == "cut" && server.is_brief() {
            return reply.brief_stream();
        }
    }
    // A client opens streams of its own only within a session.
    reply.has_session = server.is_brief();
    let mut message = json!({"jsonrpc": "2.0", "id": id});
    match server.outcome(&request) {
        Some(Ok(result)) => message["result"] = result,
        Some(Err((code, text, data))) => {
            message["error"] = json!({"code": code, "message": text, "data": data});
        }
        None => return reply.silence(),
    }
    reply.answer(&message);
}

/// Returns the method and the body of the next request, or `None` at the end.
fn read(input: &mut impl BufRead) -> io::Result<Option<(String, Vec<u8>)>> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let method = line.split(' ').next().unwrap_or_default().to_owned();
    let mut headers = HashMap::new();
    loop {
        line.clear();
        input.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok());
    let mut body = vec![0; length.unwrap_or_default()];
    input.read_exact(&mut body)?;
    Ok(Some((method, body)))
}

/// The response to one request: one JSON message, or a stream of events if messages precede the
/// answer.
struct Reply {
    stream: TcpStream,
    is_stream: bool,
    /// Whether the connection ends after the response.
    is_over: bool,
    /// Whether it sends a session id to the client.
    has_session: bool,
}

impl Reply {
    fn status(&mut self, status: &str) {
        self.write(&format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"));
    }

    fn json(&mut self, text: &str, length: usize) {
        let session = if self.has_session { "Mcp-Session-Id: one\r\n" } else { "" };
        self.write(&format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{session}\
             Content-Length: {length}\r\n\r\n{text}"
        ));
    }

    fn event(&mut self, message: &Value) {
        if !self.is_stream {
            self.is_stream = true;
            self.write(
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n",
            );
        }
        self.write(&format!("data: {message}\n\n"));
    }

    /// Begins a stream of events, asks for the next one at once, and ends it.
    fn brief_stream(&mut self) {
        self.write(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n\
             retry: 0\nid: 1\ndata:\n\n",
        );
        self.is_over = true;
    }

    fn write(&mut self, text: &str) {
        // A client that disconnected ends the connection, and nothing else.
        self.is_over |= self.stream.write_all(text.as_bytes()).is_err();
    }
}

impl Wire for Reply {
    fn tell(&mut self, message: &Value) {
        self.event(message);
    }

    fn answer(&mut self, message: &Value) {
        if self.is_stream {
            self.event(message);
            self.is_over = true;
        } else {
            let text = message.to_string();
            self.json(&text, text.len());
        }
    }

    fn garbage(&mut self) {
        let text = "this is no JSON {";
        self.json(text, text.len());
    }

    fn break_off(&mut self, message: &Value) {
        let text = message.to_string();
        self.json(&text[..text.len() / 2], text.len());
        self.is_over = true;
    }

    fn silence(&mut self) {
        // Until the client disconnects, or sends something else, which it must not.
        let _ = self.stream.peek(&mut [0]);
        self.is_over = true;
    }

    fn refuse(&mut self) {
        self.status("500 Internal Server Error");
    }
}

//! Scripted servers that replay recorded tool calls.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs, io,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use rmcp::model::CallToolResult;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Answer, RecordedCall, Server};
use crate::mutex::lock;

/// The value of the member `format` in the first line of a recording. A file without it is not a
/// recording.
const FORMAT: &str = "mcp-composite recording";
/// The version of the recording format that this module supports.
const VERSION: u64 = 1;

/// An object with this member stands for a value that was too large to be recorded.
const OMITTED: &str = "(omitted)";

/// A line of a recording. Contains only the data that is needed to replay calls.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line {
    Header {
        format: String,
        version: u64,
    },
    Run(Run),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Run {
    id: String,
    composite: String,
    #[serde(default)]
    branches: Vec<Branch>,
}

#[derive(Deserialize)]
struct Branch {
    status: String,
    ended_ms: Option<u64>,
    #[serde(default)]
    attempts: Vec<Attempt>,
    result: Option<Value>,
}

#[derive(Deserialize)]
struct Attempt {
    at_ms: u64,
    tool: String,
    arguments: Option<Value>,
}

/// A recorded tool call, with the answer that the server gives when the call is replayed.
struct Played {
    arguments: Option<Value>,
    answer: Answer,
    is_used: bool,
}

// === impl Server ===

impl Server {
    /// Creates a server whose tools return recorded results. To record them, run the program
    /// `mcp-composite` with `serve --record FILE --show-data`.
    ///
    /// The server answers a call with the result of a recorded call of the same tool with the same
    /// arguments:
    ///
    /// - If there are several such calls, each is replayed once, in order. After that, the last one
    ///   is repeated.
    /// - If there is no such call, the server returns a failed result (`isError`).
    /// - The server waits as long as the recorded call took, so use paused time. If the recorded
    ///   call timed out or was cancelled, the server never answers.
    ///
    /// In a recording, `***` replaces the secrets of the configuration. If the arguments of a
    /// recorded call contain `***`, the new call must have `***` at the same place.
    ///
    /// The server has each tool that a recorded composite called, under the name that the composite
    /// used. Composites that other composites called are not among these tools: the configuration
    /// under test contains them.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or is not a recording. An incomplete line is
    /// ignored, because the program may have been stopped while it wrote the line.
    pub fn replay(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let text = fs::read_to_string(path).map_err(named)?;
        let runs = runs(&text).map_err(|error| named(io::Error::other(error)))?;
        let composites: HashSet<&str> = runs.iter().map(|run| &*run.composite).collect();
        let mut tools: BTreeMap<&str, Vec<Played>> = BTreeMap::new();
        for branch in runs.iter().flat_map(|run| &run.branches) {
            for (index, attempt) in branch.attempts.iter().enumerate() {
                if !composites.contains(&*attempt.tool) {
                    tools.entry(&attempt.tool).or_default().push(branch.played(index));
                }
            }
        }
        Ok(tools.into_iter().fold(Self::new(), |server, (tool, played)| {
            let played = Arc::new(Mutex::new(played));
            server.tool(
                tool,
                Answer::from_fn(move |call| {
                    let mut played = lock(&played);
                    let answer = next(&mut played, &call);
                    async move { answer }
                }),
            )
        }))
    }
}

/// Parses the runs in the text of a recording, in the order in which they first appear. If the
/// recording contains several states of a run, returns only the last one.
fn runs(text: &str) -> Result<Vec<Run>, String> {
    let mut lines = text.lines();
    let header = lines.next().and_then(|line| serde_json::from_str(line).ok());
    match header {
        Some(Line::Header { format, version: VERSION }) if format == FORMAT => (),
        Some(Line::Header { format, version }) if format == FORMAT => {
            return Err(format!("a recording of version {version}: expected version {VERSION}"));
        }
        _ => return Err("not a recording: expected its header in the first line".to_owned()),
    }
    let mut runs: Vec<Run> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for line in lines {
        let Ok(Line::Run(run)) = serde_json::from_str(line) else { continue };
        match places.get(&run.id) {
            Some(&place) => runs[place] = run,
            None => {
                places.insert(run.id.clone(), runs.len());
                runs.push(run);
            }
        }
    }
    Ok(runs)
}

/// Returns the recorded answer to `call`, and marks the recorded call as replayed. Chooses the
/// first recorded call with the same arguments that was not replayed yet, or the last one if all
/// were replayed. If there is no such call, returns a failure.
fn next(played: &mut [Played], call: &RecordedCall) -> Answer {
    let arguments = match call.arguments() {
        Value::Null => Value::Object(Map::new()),
        arguments => arguments,
    };
    let is_same = |one: &Played| one.arguments.as_ref().is_none_or(|known| *known == arguments);
    let unused = played.iter().position(|one| is_same(one) && !one.is_used);
    let Some(at) = unused.or_else(|| played.iter().rposition(is_same)) else {
        let tool = call.tool();
        return Answer::failure(format!("no call of `{tool}` with these arguments was recorded"));
    };
    played[at].is_used = true;
    played[at].answer.clone()
}

// === impl Branch ===

impl Branch {
    /// Converts the attempt with this index to a tool call that can be replayed. Only the last
    /// attempt of a branch has a recorded result. Earlier attempts are replayed as failures.
    fn played(&self, index: usize) -> Played {
        let Attempt { at_ms, ref arguments, .. } = self.attempts[index];
        let following = self.attempts.get(index + 1);
        let end = following.map(|following| following.at_ms).or(self.ended_ms);
        let took = Duration::from_millis(end.unwrap_or(at_ms).saturating_sub(at_ms));
        let result = self.result.as_ref().filter(|result| result.get(OMITTED).is_none());
        let result = result.map(CallToolResult::deserialize);
        let answer = match (&*self.status, result) {
            _ if following.is_some() => Answer::failure("the recorded call failed and was retried"),
            (_, Some(Ok(result))) => Answer::from(result),
            ("timed_out" | "cancelled" | "running" | "waiting", _) => Answer::never(),
            ("failed", _) => Answer::failure("the recorded call failed"),
            _ => Answer::failure(
                "the recording contains no result of this call: it was recorded without \
                 `--show-data`, or the result was too large",
            ),
        };
        let arguments = arguments.clone().filter(|arguments| arguments.get(OMITTED).is_none());
        Played { arguments, answer: answer.after(took), is_used: false }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::testing;

    const HEADER: &str = r#"{"kind":"header","format":"mcp-composite recording","version":1}"#;

    fn text(text: &str) -> Value {
        json!({ "content": [{ "type": "text", "text": text }] })
    }

    fn server(lines: &[Value]) -> io::Result<Server> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(file.path(), format!("{HEADER}\n{lines}{{\"kind\":\"run\"")).unwrap();
        Server::replay(file.path())
    }

    #[tokio::test(start_paused = true)]
    async fn replayed_tool_answers_each_recorded_call_after_its_duration() {
        let call = |q: u64, ended: u64, result: &str| {
            json!({
                "status": "completed", "ended_ms": ended, "result": text(result),
                "attempts": [{ "at_ms": 10, "tool": "search", "arguments": { "q": q } }],
            })
        };
        let branches = [call(1, 1010, "one"), call(2, 10, "two"), call(1, 10, "one again")];
        let run = json!({ "kind": "run", "id": "a", "composite": "all", "branches": branches });
        let server = server(&[json!({ "kind": "later" }), run]).unwrap();
        let start = Instant::now();
        let call = async |q: u64| testing::call(&server, "search", json!({ "q": q })).await;
        let expected = |result| serde_json::from_value::<CallToolResult>(text(result)).unwrap();
        assert_eq!(call(1).await, expected("one"));
        assert_eq!(start.elapsed().as_secs(), 1);
        assert_eq!(call(2).await, expected("two"));
        assert_eq!(call(1).await, expected("one again"));
        assert_eq!(call(1).await, expected("one again"));
        assert_eq!(call(3).await.is_error, Some(true));
    }

    #[tokio::test(start_paused = true)]
    async fn replayed_branch_fails_times_out_and_retries_as_recorded() {
        let attempt = |at: u64, tool: &str| json!({ "at_ms": at, "tool": tool, "arguments": {} });
        let failed = json!({ "isError": true, "content": [{ "type": "text", "text": "full" }] });
        let run = json!({ "kind": "run", "id": "a", "composite": "all", "branches": [
            { "status": "completed", "ended_ms": 2, "result": text("yes"),
              "attempts": [attempt(0, "flaky"), attempt(1, "flaky")] },
            { "status": "failed", "ended_ms": 1, "result": failed, "attempts": [attempt(0, "bad")] },
            { "status": "timed_out", "ended_ms": 1, "attempts": [attempt(0, "slow")] },
            { "status": "completed", "ended_ms": 1, "attempts": [attempt(0, "part")] },
        ] });
        let part = json!({ "kind": "run", "id": "b", "composite": "part" });
        // A later line about a run replaces the earlier one.
        let early = json!({ "kind": "run", "id": "a", "composite": "all", "branches": [
            { "status": "running", "attempts": [attempt(0, "never")] },
        ] });
        let server = server(&[early, run, part]).unwrap();
        let call = async |tool: &str| testing::call(&server, tool, json!({})).await;
        assert_eq!(call("flaky").await.is_error, Some(true));
        assert_eq!(call("flaky").await.is_error, None);
        assert_eq!(call("bad").await.content[0].as_text().unwrap().text, "full");
        let slow = tokio::time::timeout(Duration::from_secs(1000), call("slow")).await;
        assert!(slow.is_err());
        let listed: Vec<_> = testing::listed(&server).await;
        let names: Vec<_> = listed.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, ["bad", "flaky", "slow"]);
    }

    #[test]
    fn file_that_is_no_recording_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, reason) in [
            ("", "not a recording"),
            ("{}\n", "not a recording"),
            (&HEADER.replace('1', "2"), "version 2: expected version 1"),
        ] {
            fs::write(file.path(), text).unwrap();
            let error = Server::replay(file.path()).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let error = Server::replay("/nowhere/runs.ndjson").unwrap_err().to_string();
        assert!(error.contains("/nowhere/runs.ndjson"), "{error}");
    }
}

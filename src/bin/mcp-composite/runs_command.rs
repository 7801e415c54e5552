//! Lists, shows and cancels the runs of a running gateway, through its page.

use std::{
    error::Error,
    fmt::Write as _,
    io::Write,
    net::SocketAddr,
    num::NonZeroUsize,
    time::{Duration, SystemTime},
};

use reqwest::{Client, Method, Response, Url};
use serde::Deserialize;

use crate::{
    arguments::RunsCommand,
    runs::{BranchRecord, ParentRecord, RunRecord},
    session,
};

/// The time for a response of the page.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A client of the page of a running gateway.
struct PageClient {
    client: Client,
    page: Url,
}

/// A run in the list of the page.
#[derive(Deserialize)]
struct ListedRun {
    id: String,
    parent: Option<ParentRecord>,
    composite: String,
    task: Option<String>,
    status: String,
    started_at_ms: u64,
    ended_ms: Option<u64>,
    took_ms: Option<u64>,
}

/// A run in detail, with the runs nested in it.
#[derive(Deserialize)]
struct RunDetails {
    run: RunRecord,
    nested: Vec<RunRecord>,
}

/// Runs a command.
///
/// # Errors
///
/// Returns an error if the page does not answer, does not know the run, or cannot cancel it.
pub(crate) fn run(
    command: &RunsCommand,
    ui: SocketAddr,
    mut out: impl Write,
) -> Result<(), Box<dyn Error>> {
    let page = PageClient::new(ui)?;
    let text = session::runtime(NonZeroUsize::MIN)?.block_on(async {
        match command {
            RunsCommand::List { open, json } => page.list(*open, *json).await,
            RunsCommand::Show { id, json } => page.show(id, *json).await,
            RunsCommand::Cancel { id } => page.cancel(id).await,
        }
    })?;
    Ok(out.write_all(text.as_bytes())?)
}

// === impl PageClient ===

impl PageClient {
    fn new(ui: SocketAddr) -> Result<Self, Box<dyn Error>> {
        // The page answers requests only to this machine, so no proxy may be asked.
        let client = Client::builder().no_proxy().timeout(TIMEOUT).build()?;
        Ok(Self { client, page: Url::parse(&format!("http://{ui}/"))? })
    }

    async fn list(&self, open: bool, is_json: bool) -> Result<String, Box<dyn Error>> {
        let text = self.send(Method::GET, &["api", "runs"]).await?.text().await?;
        let mut runs: Vec<ListedRun> = serde_json::from_str(&text)?;
        let is_listed = |run: &ListedRun| !open || run.ended_ms.is_none();
        if is_json {
            let mut values: Vec<serde_json::Value> = serde_json::from_str(&text)?;
            let mut listed = runs.iter().map(is_listed);
            values.retain(|_| listed.next().unwrap_or_default());
            return Ok(format!("{:#}\n", serde_json::Value::from(values)));
        }
        runs.retain(is_listed);
        if runs.is_empty() {
            return Ok("no runs\n".to_owned());
        }
        let mut text =
            format!("{:16}  {:9}  {:24}  {:>9}  composite\n", "id", "status", "started", "took");
        for run in runs {
            let ListedRun { id, parent, composite, task, status, started_at_ms, took_ms, .. } = run;
            let (started, took) = (time(started_at_ms), duration(took_ms));
            write!(text, "{id:16}  {status:9}  {started:24}  {took:>9}  {composite}")?;
            if let Some(ParentRecord { run, branch }) = parent {
                write!(text, " (called by `{branch}` of {run})")?;
            }
            if let Some(task) = task {
                write!(text, " (task {task})")?;
            }
            text.push('\n');
        }
        Ok(text)
    }

    async fn show(&self, id: &str, is_json: bool) -> Result<String, Box<dyn Error>> {
        let text = self.send(Method::GET, &["api", "runs", id]).await?.text().await?;
        if is_json {
            return Ok(format!("{:#}\n", serde_json::from_str::<serde_json::Value>(&text)?));
        }
        let RunDetails { run, nested } = serde_json::from_str(&text)?;
        let mut text = String::new();
        for run in [&run].into_iter().chain(&nested) {
            let RunRecord { id, composite, status, started_at_ms, took_ms, branches, .. } = run;
            let (started, took) = (time(*started_at_ms), duration(*took_ms));
            writeln!(text, "{composite}  {id}  {status}  started {started}  took {took}")?;
            if let Some(task) = &run.task {
                writeln!(text, "  task {task}")?;
            }
            if let Some(limit) = &run.limit {
                writeln!(text, "  ended by the limit `{limit}`")?;
            }
            for branch in branches {
                describe(branch, &mut text)?;
            }
            if run.omitted_branches > 0 {
                writeln!(text, "  and {} more branches, which are not kept", run.omitted_branches)?;
            }
        }
        Ok(text)
    }

    async fn cancel(&self, id: &str) -> Result<String, Box<dyn Error>> {
        self.send(Method::POST, &["api", "runs", id, "cancel"]).await?;
        Ok(format!("cancelled the run {id}\n"))
    }

    /// Sends a request to a path of the page.
    ///
    /// # Errors
    ///
    /// Returns an error if the page does not answer, or with the reason why it refuses.
    async fn send(&self, method: Method, path: &[&str]) -> Result<Response, Box<dyn Error>> {
        let mut url = self.page.clone();
        // A segment cannot leave the path, whatever it contains.
        url.path_segments_mut().map_err(|()| "the address is not valid")?.clear().extend(path);
        let response = self.client.request(method, url).send().await.map_err(|error| {
            let page = &self.page;
            let reason = if error.is_timeout() { "does not answer" } else { "cannot be reached" };
            format!("{page} {reason}: start the gateway with `--ui`, or name its page with `--ui`")
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let reason = response.text().await?;
        Err(match reason.trim() {
            "" => format!("{} answered {status}: it may be another server", self.page),
            reason => reason.to_owned(),
        }
        .into())
    }
}

/// Describes a branch in one line.
fn describe(branch: &BranchRecord, text: &mut String) -> Result<(), Box<dyn Error>> {
    let BranchRecord { id, element, status, calls, took_ms, .. } = branch;
    let name = element.map_or_else(|| id.clone(), |element| format!("{id}[{element}]"));
    write!(text, "  {name:24}  {status:9}  {:>9}  {calls} calls", duration(*took_ms))?;
    let waits = branch.waits.last().filter(|wait| wait.until_ms.is_none());
    if let Some(reason) = branch.error.as_ref().or(branch.reason.as_ref()) {
        write!(text, "  {reason}")?;
    }
    if waits.is_some() {
        text.push_str("  waits for an answer");
    }
    text.push('\n');
    Ok(())
}

/// Formats a time in milliseconds since 1970.
fn time(ms: u64) -> String {
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
    humantime::format_rfc3339_millis(time).to_string()
}

fn duration(ms: Option<u64>) -> String {
    ms.map_or_else(
        || "-".to_owned(),
        |ms| format!("{:.3} s", Duration::from_millis(ms).as_secs_f64()),
    )
}

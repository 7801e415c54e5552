//! Checks a file, and lists the tools that clients would see.

use std::{env, error::Error, io::Write};

use mcp_composite::{
    adapter::{Router, router::Problem},
    advertise::AdvertiseLayer,
    config::{Config, View},
    message::{BackendError, Context, Reply, Request},
};
use rmcp::model::{
    ClientRequest, ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest, Tool,
};
use tower::{Layer, Service, ServiceExt};

use crate::{
    arguments::Check,
    report::{
        BackendReport, OfflineReport, Report, ViewReport, described, json, of_view_only, remarks,
    },
    session::{Session, Setup, not_connected},
};

/// Connects all backends and prints the tools, the composites and remarks.
///
/// # Errors
///
/// Returns the problems, if there are any.
pub(crate) async fn check(
    session: &Session,
    is_json: bool,
    out: impl Write,
) -> Result<(), Box<dyn Error>> {
    let checked = async { print(session, &report(session).await?, is_json, out) };
    session.until_stopped(checked).await
}

fn print(
    session: &Session,
    report: &Report,
    is_json: bool,
    mut out: impl Write,
) -> Result<(), Box<dyn Error>> {
    let text = if is_json { json(report)? } else { report.to_string() };
    session.print(&text, &mut out)?;
    session.fail_with(&report.problems)
}

/// Prints the tools that clients would see.
///
/// # Errors
///
/// Returns an error if the tools cannot be listed, or if a backend is not connected. In the latter
/// case, prints the tools of the other backends.
pub(crate) async fn tools(
    session: &Session,
    is_json: bool,
    mut out: impl Write,
) -> Result<(), Box<dyn Error>> {
    let listed = async {
        let absent = session.absent().await;
        let tools = list(session.gateway.service()).await?;
        let text = if is_json { json(&tools)? } else { tools.iter().map(described).collect() };
        session.print(&text, &mut out)?;
        session.fail_with(&absent)
    };
    session.until_stopped(listed).await
}

/// Checks a file without its backends and without environment variables, which a placeholder
/// replaces if they are not set. If the file has a `[lock]`, checks it against the approved tools.
///
/// # Errors
///
/// Returns the errors of the file and of its lock, and the problems with the approved tools.
pub(crate) fn offline(
    check: &Check,
    setup: Setup,
    mut out: impl Write,
) -> Result<(), Box<dyn Error>> {
    let config = Config::load_with_env(&check.file, |name| {
        Some(env::var(name).unwrap_or_else(|_| placeholder(name)))
    })?;
    let mut config = check.view.select(config)?;
    if let Some(lock) = config.take_lock() {
        let config = config.with_locked_backends(&lock.read()?);
        return Session::run(config, setup, async |session| {
            let report = report(session).await?.offline();
            print(session, &report, check.json, out)
        });
    }
    let report = OfflineReport::new(&config);
    let text = if check.json { json(&report)? } else { report.to_string() };
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Returns a value in place of an environment variable that is not set: a URL if its name suggests
/// one, else a text that is long enough for a key. Each variable has another value, since tokens
/// must differ.
fn placeholder(name: &str) -> String {
    let is_url = ["URL", "URI", "ENDPOINT"].iter().any(|word| name.contains(word));
    if is_url { "http://localhost".to_owned() } else { format!("{name:x<32}") }
}

async fn report(session: &Session) -> Result<Report, Box<dyn Error>> {
    let Session { config, gateway, .. } = session;
    let mut report = Report::default();
    let connected = session.connect().await;
    let backends = gateway.backends();
    for (remote, (name, reason)) in backends.remotes().iter().zip(&connected) {
        let info = remote.server_info();
        let server = reason.is_none().then(|| {
            let server = info.as_ref().and_then(|info| info.server_info.as_ref());
            let server = server.map(|server| format!("{} {}, ", server.name, server.version));
            let protocol = info.as_ref().map_or("?", |info| info.protocol_version.as_str());
            format!("{}MCP {protocol}", server.unwrap_or_default())
        });
        report.backends.push(BackendReport { name: name.clone(), server });
        if let Some(reason) = reason {
            report.problems.push(not_connected(name, reason));
        }
    }

    let main = gateway.main();
    let ViewReport { tools, composites, not_advertised, .. } =
        view_report(&main, config, backends.router()).await?;
    (report.tools, report.composites) = (tools, composites);
    report.not_advertised = not_advertised;
    let warnings = gateway.warnings();
    let mut of_views = Vec::new();
    for view in config.views() {
        let path = view.path();
        let (Some(view), Some(config)) = (gateway.view(path), config.view(path)) else { continue };
        report.views.push(view_report(&view, &config, backends.router()).await?);
        of_views.extend(of_view_only(path, &warnings, view.warnings()));
    }
    report.remarks = remarks(config);
    for problem in backends.router().problems() {
        let is_absent =
            |name: &str| connected.iter().any(|(other, reason)| other == name && reason.is_some());
        match &problem {
            // That a backend is not connected was already reported.
            Problem::NotListed { backend, .. } if is_absent(backend) => (),
            // Expected with `conflicts = "priority"`.
            Problem::Shadowed { .. } => report.remarks.push(problem.to_string()),
            _ => report.problems.push(problem.to_string()),
        }
    }
    if connected.iter().all(|(_, reason)| reason.is_none()) {
        report.problems.extend(unmatched_labels(config, backends.router()).await?);
    }
    report.problems.extend(warnings);
    report.problems.extend(of_views);
    Ok(report)
}

/// Returns problems with the patterns of `[[flow]]` that match no tool of the backends.
async fn unmatched_labels(
    config: &Config,
    router: &Router,
) -> Result<impl Iterator<Item = String>, Box<dyn Error>> {
    let policy = config.flow_policy();
    // Without labels, the tools need not be listed again.
    let tools = if policy.is_empty() { Vec::new() } else { list(router.clone()).await? };
    let unmatched = policy.unmatched(tools.iter().map(|tool| &*tool.name));
    let problem = |pattern| format!("`[[flow]]`: the pattern `{pattern}` matches no tool");
    Ok(unmatched.into_iter().map(problem))
}

/// Lists what clients of a view see. `config` is that of the view.
async fn view_report(
    view: &View,
    config: &Config,
    router: &Router,
) -> Result<ViewReport, Box<dyn Error>> {
    let tools = list(view.service()).await?;
    // The same, as if all of them were advertised.
    let everything = config.stack_layer().advertise(AdvertiseLayer::new());
    let all = list(everything.layer(router.clone())).await?;
    let is_hidden = |tool: &Tool| !tools.iter().any(|listed| listed.name == tool.name);
    let not_advertised =
        all.into_iter().filter(is_hidden).map(|tool| tool.name.into_owned()).collect();
    let composites = config.composite_tools();
    let (composites, tools) = tools
        .into_iter()
        .partition(|tool| composites.iter().any(|composite| composite.name() == tool.name));
    list_the_rest(view).await?;
    let path = view.path().unwrap_or_default().to_owned();
    Ok(ViewReport { path, tools, composites, not_advertised })
}

/// Lists prompts and resources too, since that finds their problems.
async fn list_the_rest(view: &View) -> Result<(), BackendError> {
    let requests: [ClientRequest; 3] = [
        ListPromptsRequest::default().into(),
        ListResourcesRequest::default().into(),
        ListResourceTemplatesRequest::default().into(),
    ];
    for request in requests {
        let request = Request::new(request, Context::default());
        view.service().oneshot(request).await?;
    }
    Ok(())
}

/// Returns all tools that a service lists.
pub(crate) async fn list<S>(stack: S) -> Result<Vec<Tool>, Box<dyn Error>>
where
    S: Service<Request, Response = Reply, Error = BackendError> + Clone,
{
    let mut tools = Vec::new();
    let mut cursor = None;
    loop {
        let reply = stack.clone().oneshot(Request::list_tools_from(cursor)).await?;
        let page = reply.tools().ok_or("unexpected response to `tools/list`")?;
        tools.extend(page.tools.iter().cloned());
        cursor = page.next_cursor.clone();
        if cursor.is_none() {
            return Ok(tools);
        }
    }
}

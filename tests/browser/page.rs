//! The sections of the page, and recordings.

use std::fs;

use rmcp::model::TaskStatus;
use serde_json::json;

use crate::{browser::Browser, gateway::Folder};

/// The arguments of a run with three elements in its loop.
fn article() -> serde_json::Value {
    json!({ "article": "a1-private", "photos": [1, 2, 3] })
}

/// Returns the condition that this number of elements is visible. A click on a link shows another
/// part of the page a moment later.
fn visible(selector: &str, count: usize) -> String {
    let elements = format!("[...document.querySelectorAll({selector:?})]");
    format!("{elements}.filter((element) => element.checkVisibility()).length === {count}")
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_composites_and_backends_are_listed() {
    let folder = Folder::new();
    let program = folder.serve(&[]);
    let mut browser = Browser::open(&format!("{}#tools", program.page));
    browser.wait("document.querySelector('tr[data-tool=offer]')");
    let rows = browser.texts("#tools-table tbody tr");
    for (name, fact) in [
        ("describe(article)", "catalogue_describe (the prefix of backend catalogue)"),
        ("offer(article, photos)", "composite\tyes"),
        ("delete_article", "no, hidden by the filter of backend catalogue"),
        ("lab_die", "no, hidden by [filter]"),
        ("catalogue_list", "no, hidden by [advertise]"),
    ] {
        let row = rows.iter().find(|row| row.starts_with(name));
        assert!(row.is_some_and(|row| row.contains(fact)), "{name}: {rows:#?}");
    }
    // The text of a server is not markup.
    assert!(rows.iter().any(|row| row.contains("<img src=x onerror=")), "{rows:#?}");
    assert_eq!(browser.value("document.querySelectorAll('main img').length"), 0);

    browser.click("nav a[href='#backends']");
    browser.wait(&visible("#backends-table tbody tr", 3));
    let rows = browser.texts("#backends-table tbody tr");
    assert!(rows[0].contains("connected\tstdio\tmisbehaving"), "{rows:#?}");
    assert!(rows[2].contains("not connected: ") && rows[2].contains("refused"), "{rows:#?}");

    browser.click("nav a[href='#composites']");
    browser.wait(&visible("#composites h3", 3));
    assert_eq!(browser.texts("#composites h3"), ["offer", "order", "broken"]);
    let nodes = "[...document.querySelectorAll('.diagram:first-child [data-node]')]\
                 .map((node) => node.dataset.node)";
    let expected = json!(["input", "describe", "stock", "price", "photos", "answer"]);
    assert_eq!(browser.value(nodes), expected);
    let is_drawn = "[...document.querySelectorAll('.diagram svg')].every((svg) => \
                    svg.getBoundingClientRect().width > 100 && svg.querySelector('.edge'))";
    assert_eq!(browser.value(is_drawn), true);
    assert_eq!(browser.texts("nav a[aria-current]"), ["Composites"]);
    browser.command("size", &json!([1100, 2200]));
    browser.screenshot("composites.png");
    browser.assert_no_problems();
}

#[tokio::test(flavor = "multi_thread")]
async fn run_appears_live_with_a_bar_for_each_branch() {
    let folder = Folder::new();
    let program = folder.serve(&[]);
    let mut browser = Browser::open(&program.page);
    browser.wait("document.getElementById('connection').textContent === 'live'");
    browser.value("window.isSamePage = true");
    assert_eq!(browser.texts("#runs-table tbody tr"), [""; 0]);

    let client = program.connect().await;
    client.call("offer", article()).await;
    browser.wait("document.querySelector('#runs-table .status.completed')");
    assert_eq!(browser.value("window.isSamePage"), true);
    assert_eq!(browser.texts("#announcement"), ["New run: offer"]);

    browser.click("#runs-table tbody a");
    browser.wait("document.querySelector('.timeline .branch')");
    let branches = "[...document.querySelectorAll('.timeline .branch')].map((branch) => \
                    [branch.dataset.branch, branch.querySelectorAll('.bar').length, \
                     branch.querySelectorAll('.attempt').length])";
    let mut branches = browser.value(branches);
    let branches = branches.as_array_mut().unwrap();
    branches.sort_by_key(|branch| branch[0].as_str().unwrap().to_owned());
    let expected = json!([
        ["describe", 1, 1],
        ["photos", 1, 0],
        ["photos[0]", 1, 1],
        ["photos[1]", 1, 1],
        ["photos[2]", 1, 1],
        ["price", 1, 3],
        ["stock", 1, 1],
    ]);
    assert_eq!(json!(branches), expected);
    // Two retries of `price`; the calls of a loop are none.
    assert_eq!(browser.texts("#runs-table tbody td:last-child"), ["2"]);
    // `photos` follows `stock`, and its last element follows one of the first two.
    let critical = "[...document.querySelectorAll('.timeline .critical')]\
                    .map((branch) => branch.dataset.branch)";
    let critical = browser.value(critical);
    let critical: Vec<_> = critical.as_array().unwrap().iter().flat_map(|it| it.as_str()).collect();
    assert_eq!((critical[0], critical[1], critical.len()), ("stock", "photos", 4), "{critical:?}");
    assert!(critical.contains(&"photos[2]"), "{critical:?}");
    // Later bars start further to the right.
    let left = |branch: &str| {
        format!("+document.querySelector(`[data-branch='{branch}'] .bar`).getAttribute('x')")
    };
    let is_later = format!("{} > {} + 50", left("photos[2]"), left("stock"));
    assert_eq!(browser.value(&is_later), true);
    assert_eq!(browser.texts("#branches tbody tr").len(), 7);

    browser.command(
        "allow",
        &json!(["clipboard-read", "clipboard-write", "clipboard-sanitized-write"]),
    );
    for (at, beginning) in [(1, "{\n  \"id\": "), (2, "flowchart TB\n    subgraph c0[\"offer,")] {
        browser.click(&format!("#run button:nth-of-type({at})"));
        let copied = format!("document.querySelectorAll('#run button')[{}].innerText", at - 1);
        browser.wait(&format!("{copied} === 'Copied'"));
        let text = browser.value("navigator.clipboard.readText()");
        assert!(text.as_str().unwrap().starts_with(beginning), "{text}");
    }
    browser.assert_no_problems();
}

#[tokio::test(flavor = "multi_thread")]
async fn branch_that_waits_for_a_person_is_hatched() {
    let folder = Folder::new();
    let program = folder.serve(&["--show-data"]);
    let mut browser = Browser::open(&program.page);
    let client = program.connect().await;
    let waits = async {
        browser.wait("document.querySelector('#runs-table tr a')");
        browser.wait(
            "(document.querySelector('.timeline .waiting .wait')) || \
             (document.querySelector('#runs-table tr:not([hidden]) a').click(), false)",
        );
        assert_eq!(browser.texts("#run-title .status"), ["waiting"]);
        let hatched = "document.querySelector('.timeline .wait').getAttribute('fill')";
        assert_eq!(browser.value(hatched), "url(#hatch)");
        browser.screenshot("waiting.png");
        // The bar grows while the run waits.
        let end = "document.querySelector('#timeline .faint:nth-last-of-type(1)').textContent";
        let before = browser.value(end);
        browser.wait(&format!("{end} !== {before}"));
        browser.click("#data summary");
        client.answer();
    };
    // The browser blocks its thread.
    let (called, ()) = tokio::join!(client.call("order", article()), waits);
    assert_ne!(called.is_error, Some(true), "{called:?}");
    browser.wait("document.querySelector('#run-title .status.completed')");
    // New events do not close the arguments that a reader has opened.
    assert_eq!(browser.value("document.getElementById('data').open"), true);
    let waited = "document.querySelector('[data-branch=sure] .wait') !== null";
    assert_eq!(browser.value(waited), true);
    assert!(browser.texts(".timeline .skipped .bar").len() == 1);
    // The nested run is linked, and names its caller.
    browser.click("#run li a");
    browser.wait("document.querySelector('#run-title').textContent.startsWith('Run of offer')");
    let facts = browser.texts("#run dl");
    assert!(facts[0].contains("offer of run"), "{facts:?}");
    browser.assert_no_problems();
}

#[tokio::test(flavor = "multi_thread")]
async fn task_that_waits_for_a_person_is_cancelled() {
    let folder = Folder::new();
    let text = fs::read_to_string(folder.path("gateway.toml")).unwrap();
    let approval = "\n[[composite_tools]]\nname = 'approval'\ndescription = 'Asks'\n\
                    strategy = 'workflow'\ntask = 'always'\n\
                    steps = [{ id = 'sure', type = 'elicitation', message = 'Sure?', schema = {} }]\n";
    fs::write(folder.path("gateway.toml"), text + approval).unwrap();
    let program = folder.serve(&[]);
    let client = program.connect_with_tasks().await;
    let id = client.start("approval").await;
    let mut browser = Browser::open(&program.page);
    browser.wait("document.querySelector('#runs-table .status.waiting')");
    assert_eq!(browser.texts("#runs-table tbody th"), ["approval (task)"]);
    let cells = browser.texts("#runs-table tbody td");
    assert!(cells.contains(&"waiting for sure".to_owned()), "{cells:?}");

    browser.click("#runs-table tbody a");
    browser.wait("document.getElementById('cancel')");
    let name = browser.value(
        "[...document.querySelectorAll('#run dt')]\
         .find((term) => term.textContent === 'Task').nextSibling.textContent",
    );
    // A person who reads the page cannot access the task like its client.
    assert_ne!(name, json!(id));
    browser.command("type", &json!(["#filter-tool", name]));
    assert_eq!(browser.texts("#runs-count"), ["1 of 1 runs"]);
    browser.screenshot("task.png");
    browser.click("#cancel");
    browser.wait("document.querySelector('#run-title .status.dropped')");
    assert_eq!(client.task_status(&id).await, TaskStatus::Cancelled);
    assert_eq!(browser.texts("#cancel").len(), 0);
    browser.assert_no_problems();
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_filtered_by_tool_and_status() {
    let folder = Folder::new();
    let program = folder.serve(&[]);
    let client = program.connect().await;
    client.answer();
    client.call("offer", article()).await;
    client.call("order", article()).await;
    client.call("broken", json!({})).await;
    let mut browser = Browser::open(&program.page);
    browser.wait("document.querySelectorAll('#runs-table tbody tr').length === 4");
    let names = |browser: &mut Browser| browser.texts("#runs-table tbody th");
    assert_eq!(names(&mut browser), ["broken", "order", "offer"]);
    browser.command("type", &json!(["#filter-tool", "ord"]));
    assert_eq!(names(&mut browser), ["order"]);
    assert_eq!(browser.texts("#runs-count"), ["1 of 4 runs"]);
    browser.value("document.getElementById('filter-tool').value = ''");
    browser.command("select", &json!(["#filter-status", "failed"]));
    assert_eq!(names(&mut browser), ["broken"]);
    browser.command("select", &json!(["#filter-status", ""]));
    browser.click("#filter-nested");
    assert_eq!(names(&mut browser).len(), 4);
    browser.assert_no_problems();
}

#[tokio::test(flavor = "multi_thread")]
async fn views_and_budgets_are_shown_if_the_file_has_them() {
    let folder = Folder::new();
    let program = folder.serve(&[]);
    let mut browser = Browser::open(&program.page);
    browser.wait("document.getElementById('connection').textContent === 'live'");
    // Nothing about views disturbs operators without any.
    browser.wait(&visible(".view", 0));
    drop(program);

    let text = fs::read_to_string(folder.path("gateway.toml")).unwrap();
    let more = "[[budget.limits]]\nname = 'calls'\nlimit = 1000\n\
                [[views]]\npath = '/team-a'\n[views.advertise]\ndeny = ['catalogue_list', 'lab_*']\n";
    fs::write(folder.path("gateway.toml"), text + more).unwrap();
    let program = folder.serve(&[]);
    program.connect().await.call("offer", article()).await;
    program.connect_to("/team-a").await.call("offer", article()).await;
    let mut browser = Browser::open(&program.page);
    browser.wait("document.querySelectorAll('#runs-table tbody tr[data-run]').length === 2");
    browser.command("select", &json!(["#filter-view", "/team-a"]));
    browser.wait(&visible("#runs-table tbody tr", 1));
    assert_eq!(browser.texts("#runs-table tbody td.view"), ["/team-a"]);
    browser.click("#runs-table tbody tr:not([hidden]) a");
    browser.wait("document.querySelectorAll('.timeline .branch').length === 7");
    assert!(browser.texts("#run dl").concat().contains("/team-a"));

    browser.click("nav a[href='#tools']");
    browser.wait(&visible("tr[data-tool=offer]", 1));
    let hidden = |browser: &mut Browser| browser.texts("#tools-table tbody tr.off").len();
    let before = hidden(&mut browser);
    browser.command("select", &json!(["#tools-view", "/team-a"]));
    assert!(hidden(&mut browser) > before);
    browser.screenshot("views.png");

    browser.click("nav a[href='#budgets']");
    browser.wait(&visible("#budgets-table tbody tr", 1));
    let used = "+document.querySelector('#budgets-table meter').value";
    browser.wait(&format!("{used} > 0"));
    let before = browser.value(used);
    program.connect().await.call("offer", article()).await;
    browser.wait(&format!("{used} > {before}"));
    browser.screenshot("budgets.png");
    browser.assert_no_problems();
}

#[tokio::test(flavor = "multi_thread")]
async fn colors_follow_the_scheme_and_keys_reach_everything() {
    let folder = Folder::new();
    let program = folder.serve(&[]);
    let mut browser = Browser::open(&program.page);
    let color = "getComputedStyle(document.body).backgroundColor";
    assert_eq!(browser.value(color), "rgb(255, 255, 255)");
    browser.command("scheme", &json!("dark"));
    browser.screenshot("dark.png");
    assert_eq!(browser.value(color), "rgb(20, 23, 26)");
    let mut reached = Vec::new();
    for _ in 0..7 {
        browser.command("press", &json!("Tab"));
        let active = "document.activeElement.textContent || document.activeElement.id";
        reached.push(browser.value(active));
        let outline = "getComputedStyle(document.activeElement).outlineStyle";
        assert_eq!(browser.value(outline), "solid", "{reached:?}");
    }
    let expected =
        ["Skip to content", "Runs", "Composites", "Tools", "Backends", "Budgets", "filter-tool"];
    assert_eq!(reached, expected);
    browser.assert_no_problems();
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_are_shown_only_with_the_option() {
    for (options, is_shown) in [(&[][..], false), (&["--show-data"], true)] {
        let folder = Folder::new();
        let program = folder.serve(options);
        program.connect().await.call("offer", article()).await;
        let mut browser = Browser::open(&program.page);
        browser.wait("document.querySelector('#runs-table tbody a')");
        browser.click("#runs-table tbody a");
        browser.wait("document.querySelector('.timeline')");
        let page = "document.documentElement.outerHTML.includes('a1-private')";
        assert_eq!(browser.value(page), is_shown);
        let loaded = "fetch('/api/' + location.hash.slice(1)).then((answer) => answer.text())\
                      .then((text) => text.includes('a1-private'))";
        assert_eq!(browser.value(loaded), is_shown);
        assert_eq!(browser.texts("#no-data").len(), usize::from(!is_shown));
        browser.assert_no_problems();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn recording_opens_also_if_it_is_cut() {
    let folder = Folder::new();
    let program = folder.serve(&["--record", "runs.ndjson"]);
    let client = program.connect().await;
    client.call("offer", article()).await;
    client.call("offer", article()).await;
    drop(client);
    program.stop();
    let text = fs::read_to_string(folder.path("runs.ndjson")).unwrap();
    assert!(!text.contains("a1-private"), "{text}");
    let (kept, last) = text.trim_end().rsplit_once('\n').unwrap();
    let half = &last[..last.len() / 2];
    fs::write(folder.path("half.ndjson"), format!("{kept}\n{half}")).unwrap();

    for (name, count, warning) in
        [("runs.ndjson", 2, ""), ("half.ndjson", 1, "is incomplete or invalid and is left out")]
    {
        let mut program = folder.view(name);
        if !warning.is_empty() {
            assert!(program.after("warning: ").contains(warning), "{name}");
        }
        let mut browser = Browser::open(&program.page);
        browser.wait("document.getElementById('connection').textContent === 'recording'");
        browser.wait("document.querySelector('#runs-table tbody a')");
        assert_eq!(browser.texts("#runs-table tbody tr").len(), count, "{name}");
        assert!(browser.texts("#warning").concat().contains(warning), "{name}");
        assert_eq!(browser.texts("#warning").len(), usize::from(!warning.is_empty()));
        let lines = program.lines();
        assert_eq!(lines.len(), 1 + usize::from(!warning.is_empty()), "{lines:?}");
        browser.click("#runs-table tbody a");
        browser.wait("document.querySelectorAll('.timeline .branch').length === 7");
        browser.assert_no_problems();
        let picture = browser.screenshot(&name.replace("ndjson", "png"));
        assert!(fs::metadata(picture).unwrap().len() > 10_000);
    }
}

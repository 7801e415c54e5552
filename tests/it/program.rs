//! The commands of the program `mcp-composite`.

use std::{fs, path::Path, process::Stdio, sync::Arc};

use mcp_composite::{config::Config, lock::Lock};
use rmcp::model::Tool;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    programs::{PROGRAM, run},
    support::until,
};

/// An example with two child processes, started from `${SHOP}`.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/hide_the_parts.toml");

/// Returns the output of a command that must succeed.
async fn printed(arguments: &[&str]) -> String {
    let output = run(arguments).await;
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the exit code and the errors of a command that must print nothing else.
async fn failed(arguments: &[&str]) -> (Option<i32>, String) {
    let output = run(arguments).await;
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "", "{arguments:?}");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn path(folder: &tempfile::TempDir, name: &str) -> String {
    folder.path().join(name).into_os_string().into_string().unwrap()
}

#[tokio::test]
async fn invalid_arguments_exit_with_2_and_failures_with_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (arguments, code, error) in [
        (&["serv", FILE][..], 2, "unrecognized subcommand 'serv'"),
        (&["serve"], 2, "<FILE>"),
        (&["serve", FILE, "--stateless"], 2, "--http <ADDRESS>"),
        (&["serve", FILE, "--http", "8080"], 2, "invalid socket address"),
        (&["serve", FILE, "--http", "127.0.0.1:0", "--max-connections", "0"], 2, "zero"),
        (&["serve", FILE, "--http", "127.0.0.1:0", "--allow-host", "a/b"], 2, "expected a host"),
        (&["serve", FILE, "--threads", "0"], 2, "expected a number from 1 to 1024"),
        (&["serve", FILE, "--threads", "1025"], 2, "expected a number from 1 to 1024"),
        (&["serve", FILE, "--http", "0.0.0.0:0"], 1, "the file has no `[auth]`"),
        (&["serve", FILE, "--http", "[::]:0"], 1, "or add `--insecure`"),
        (&["serve", FILE, "--show-data"], 2, "<--ui [<ADDRESS>]|--record <RECORDING>>"),
        (&["serve", FILE, "--insecure"], 2, "<--http <ADDRESS>|--ui [<ADDRESS>]>"),
        (&["serve", FILE, "--ui", "0.0.0.0:0"], 1, "`--ui 0.0.0.0:0` can be reached by other"),
        (&["serve", FILE, "--ui", &taken], 1, "`--ui 127.0.0.1:0` takes a free port"),
        (&["serve", FILE, "--record", FILE], 1, "it is not a recording of `serve --record`"),
        (&["view", FILE, "--ui", "127.0.0.1:0"], 1, "not a recording"),
        (&["view", "/nowhere/runs.ndjson", "--ui", "127.0.0.1:0"], 1, "/nowhere/runs.ndjson: "),
        (&["view", FILE, "--ui", "[::]:0"], 1, "add `--insecure`"),
        (&["check", FILE, "--watch"], 2, "unexpected argument '--watch'"),
        (&["serve", "/nowhere/tools.toml"], 1, "/nowhere/tools.toml"),
        (&["serve", FILE, "--http", &taken], 1, "cannot listen at 127.0.0.1:"),
        (&["call", FILE, "nothing"], 1, "unknown tool `nothing`"),
        (&["tools", FILE, "--view", "/a"], 1, "unknown view `/a`: the file has no `[[views]]`"),
        (&["serve", "--ui", FILE], 2, "if this is the configuration file, write it before `--ui`"),
        (&["serve", FILE, "--record-max-bytes", "5000000"], 2, "--record <RECORDING>"),
        (&["serve", FILE, "--record", "r", "--record-max-bytes", "5"], 2, "is not in 1048576.."),
        (&["serve", FILE, "--http", "127.0.0.1:0", "--view", "/a"], 2, "'--view <PATH>'"),
        (&["init", FILE], 1, "hide_the_parts.toml: "),
    ] {
        let (got, errors) = failed(arguments).await;
        assert_eq!(got, Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(error), "{arguments:?}: {errors}");
    }
}

#[tokio::test]
async fn call_prints_the_result_as_a_client_gets_it() {
    let output = printed(&["call", FILE, "offer", "--input", r#"{ "article": "b10" }"#]).await;
    let result: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(result["branches"]["price"], json!({ "status": "completed", "output": "8 €" }));
}

#[tokio::test]
async fn call_shows_no_progress_without_a_terminal() {
    let output = run(&["call", FILE, "offer", "--input", r#"{ "article": "b10" }"#]).await;
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert!(output.stdout.starts_with(b"{\n"));
}

#[tokio::test]
async fn tools_reports_backends_that_are_not_connected() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(&folder, "tools.toml");
    let text = "[[backends]]\nname = 'gone'\ncommand = '/nowhere/server'\n\
                [[backends]]\nname = 'shop'\ncommand = '${SHOP}'\nargs = ['warehouse']\n";
    fs::write(&file, text).unwrap();
    let output = run(&["tools", &file]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stdout).unwrap().contains("  shop_"), "{text}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.starts_with("backend `gone` is not connected: "), "{error}");
}

#[tokio::test]
async fn tools_and_check_list_what_clients_see() {
    let tools = printed(&["tools", FILE]).await;
    assert!(tools.starts_with("  offer(article)  read-only\n    "), "{tools}");
    assert_eq!(tools.lines().count(), 2, "{tools}");
    let tools: Value = serde_json::from_str(&printed(&["tools", FILE, "--json"]).await).unwrap();
    assert_eq!(tools[0]["inputSchema"]["required"], json!(["article"]));

    let report: Value = serde_json::from_str(&printed(&["check", FILE, "--json"]).await).unwrap();
    let offline = printed(&["check", FILE, "--json", "--offline"]).await;
    let offline: Value = serde_json::from_str(&offline).unwrap();
    let keys = |report: &Value| report.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&offline), keys(&report));
    assert_eq!(report["backends"][0]["name"], "catalogue");
    assert_eq!(report["composites"][0]["name"], "offer");
    assert_eq!((&report["tools"], &report["problems"]), (&json!([]), &json!([])));
    assert!(report["not_advertised"].as_array().unwrap().contains(&json!("catalogue_price")));
}

#[tokio::test]
async fn offline_check_needs_neither_backends_nor_variables() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(&folder, "tools.toml");
    let backend = "[[backends]]\nname = 'a'\nurl = '${A_URL}/mcp'\n\
                   headers = { Authorization = 'Bearer ${A_TOKEN}' }\n\
                   [state]\nkeys = [{ id = 'k', key = '${A_KEY}' }]\n\
                   [[auth.tokens]]\ncaller = 'a'\ntoken = '${A_TOKEN}'\n\
                   [[auth.tokens]]\ncaller = 'b'\ntoken = '${B_TOKEN}'\n";
    fs::write(&file, backend).unwrap();
    let output = printed(&["check", &file, "--offline"]).await;
    assert_eq!(output, "backends, not connected\n  a\n\ncomposites\n");

    let composite = "[[composite_tools]]\nname = 'all'\ndescription = 'All'\ntools = ['a/x']\n";
    fs::write(&file, format!("{backend}{composite}")).unwrap();
    let report = printed(&["check", &file, "--offline", "--json"]).await;
    let report: Value = serde_json::from_str(&report).unwrap();
    let remarks = report["remarks"].clone();
    assert!(remarks.is_array(), "{report}");
    let expected = json!({
        "backends": [{ "name": "a", "server": null }],
        "tools": [],
        "composites": [{ "name": "all" }],
        "not_advertised": [],
        "views": [],
        "remarks": remarks,
        "problems": [],
    });
    assert_eq!(report, expected);

    fs::write(&file, format!("{backend}\n[filtre]\n")).unwrap();
    let (code, errors) = failed(&["check", &file, "--offline"]).await;
    assert_eq!(code, Some(1));
    assert!(errors.contains("`filtre`") && errors.contains("`filter`"), "{errors}");
}

#[tokio::test]
async fn offline_check_uses_the_approved_tools_of_a_lock() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(&folder, "tools.toml");
    let text = |argument: &str| {
        format!(
            "[[backends]]\nname = 'shop'\nurl = 'https://${{SHOP_HOST}}/mcp'\n\
             [lock]\nfile = 'tools.lock'\n\
             [[composite_tools]]\nname = 'price'\ndescription = 'The price'\n\
             strategy = 'pipeline'\n\
             [[composite_tools.steps]]\nid = 'a'\ntool = 'shop/price'\narguments = {{ {argument} = 'tea' }}\n"
        )
    };
    fs::write(&file, text("item")).unwrap();
    let check = ["check", &*file, "--offline"];
    let (_, errors) = failed(&check).await;
    assert!(errors.contains("tools.lock` does not exist"), "{errors}");

    let schema = json!({
        "type": "object",
        "properties": { "item": { "type": "string" } },
        "required": ["item"],
        "additionalProperties": false,
    });
    let schema: rmcp::model::JsonObject = serde_json::from_value(schema).unwrap();
    let mut lock = Lock::new();
    lock.pin("shop", &Tool::new("price", "Returns a price", Arc::new(schema))).unwrap();
    fs::write(folder.path().join("tools.lock"), lock.to_toml_string()).unwrap();
    let report: Value =
        serde_json::from_str(&printed(&["check", &file, "--offline", "--json"]).await).unwrap();
    assert_eq!(report["backends"], json!([{ "name": "shop", "server": null }]));
    assert_eq!(report["tools"][0]["name"], "shop_price");
    assert_eq!(report["composites"][0]["name"], "price");
    assert!(printed(&check).await.contains("  shop: not connected\n"));

    for (argument, expected) in [("goods", "`goods`"), ("missing", "`item`")] {
        fs::write(&file, text(argument)).unwrap();
        let output = run(&check).await;
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains("price") && errors.contains(expected), "{errors}");
    }
}

#[tokio::test]
async fn init_converts_the_servers_of_a_client_without_its_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let (file, from) = (path(&folder, "tools.toml"), path(&folder, "client.json"));
    let client = json!({ "mcpServers": {
        "git hub": {
            "command": "npx",
            "args": ["-y", "server", "${workspaceFolder}"],
            "env": { "GITHUB_TOKEN": "ghp_secret" },
        },
        "docs": {
            "type": "http",
            "url": "https://docs.example.com/mcp",
            "headers": { "Authorization": "Bearer secret" },
        },
    } });
    fs::write(&from, client.to_string()).unwrap();
    let output = printed(&["init", &file, "--from", &from]).await;
    assert!(output.ends_with("variables: DOCS_AUTHORIZATION, GITHUB_TOKEN\n"), "{output}");
    let written = fs::read_to_string(&file).unwrap();
    assert!(!written.contains("secret"), "{written}");
    assert!(written.contains(r#"env = { GITHUB_TOKEN = "${GITHUB_TOKEN}" }"#), "{written}");
    let config = Config::load_with_env(Path::new(&file), |name| Some(name.to_owned())).unwrap();
    let names: Vec<_> = config.backends().iter().map(|backend| backend.name()).collect();
    assert_eq!(names, ["docs", "git-hub"]);
    assert!(written.contains(r#"args = ["-y", "server", "$${workspaceFolder}"]"#), "{written}");

    for (client, error) in [
        ("{", "EOF while parsing"),
        ("{}", "expected an object with `mcpServers`"),
        (r#"{ "servers": { "a": {} } }"#, "server `a`: expected either a `command` or a `url`"),
        (r#"{ "servers": { "a": 1 } }"#, "server `a`: expected an object"),
    ] {
        fs::write(&from, client).unwrap();
        let new = path(&folder, "new.toml");
        let (code, errors) = failed(&["init", &new, "--from", &from]).await;
        assert_eq!(code, Some(1), "{client}");
        assert!(errors.contains(error) && errors.lines().count() == 1, "{client}: {errors}");
        assert!(!Path::new(&new).exists(), "{client}");
    }
}

#[tokio::test]
async fn init_writes_a_valid_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(&folder, "tools.toml");
    printed(&["init", &file]).await;
    let output = printed(&["check", &file, "--offline"]).await;
    assert_eq!(output, "backends, not connected\n\ncomposites\n");
    // The examples are valid, too.
    let text = fs::read_to_string(&file).unwrap();
    let is_toml = |line: &&str| line.contains(" = ") || line.starts_with("# [");
    let examples: Vec<_> = text.lines().filter(is_toml).map(|line| &line[2..]).collect();
    let config = Config::from_toml_str_with_env(&examples.join("\n"), |_| Some("x".into()));
    let errors = config.map_or_else(|errors| errors.to_string(), |_| String::new());
    assert!(
        errors.contains("unknown tool `BACKEND/TOOL`") && !errors.contains("unknown key"),
        "{errors}"
    );
}

#[tokio::test]
async fn schema_and_completions_are_printed() {
    let schema: Value = serde_json::from_str(&printed(&["schema"]).await).unwrap();
    assert_eq!(schema["title"], "A file of mcp-composite");
    for shell in ["bash", "zsh", "fish"] {
        assert!(printed(&["completions", shell]).await.contains("offline"), "{shell}");
    }
}

#[tokio::test]
async fn error_at_the_end_has_the_format_of_the_log() {
    let arguments = ["--log-format", "json", "serve", "/nowhere/tools.toml"];
    let (code, text) = failed(&arguments).await;
    assert_eq!(code, Some(1));
    assert_eq!(text.lines().count(), 1, "{text}");
    let error: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(error["level"], "ERROR");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("/nowhere/tools.toml"), "{message}");
    assert!(error["timestamp"].is_string() && error["target"].is_string(), "{text}");
}

#[tokio::test]
async fn import_prints_a_valid_file_or_all_mistakes() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/configs/toolhive");
    let file = |name: &str| format!("{folder}/{name}");
    let toml = printed(&["import", "toolhive", &file("valid_deploy.yaml")]).await;
    let config = Config::from_toml_str_with_env(&toml, |_| Some("t0k3n".to_owned())).unwrap();
    assert_eq!(config.composite_tools().len(), 1);

    let (code, error) = failed(&["import", "toolhive", &file("tab.yaml")]).await;
    assert_eq!(code, Some(1));
    assert!(error.contains("tab.yaml:2:2") && error.contains("use spaces"), "{error}");
    let (code, error) = failed(&["import", "toolhive", &file("none.yaml")]).await;
    assert_eq!(code, Some(1));
    assert!(error.contains("cannot read"), "{error}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn program_writes_no_core_dumps() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(&folder, "tools.toml");
    fs::write(&file, "[[backends]]\nname = 'a'\nurl = 'http://127.0.0.1:1/mcp'\n").unwrap();
    let allow = "ulimit -S -c \"$(ulimit -H -c)\"; exec \"$0\" serve \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", allow, PROGRAM, &file]).stdin(Stdio::piped()).stdout(Stdio::null());
    let program = command.stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
    let limits = format!("/proc/{}/limits", program.id().unwrap());
    until(async || {
        let limits = fs::read_to_string(&limits).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        core.split_whitespace().nth(4) == Some("0")
    })
    .await;
}

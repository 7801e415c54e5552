//! A run that one replica begins and another one ends.
//!
//! It starts a server, three gateways before it and nginx before those, all on free ports of this
//! machine. Then it calls, as a client of 2026-07-28, a tool that asks before it deploys, agrees,
//! and prints which replica sent each answer. It requires nginx, and the program of
//! this crate:
//!
//! ```text
//! apt-get install nginx-light
//! cargo build --all-features --bin mcp-composite
//! cargo run --all-features --example replicas
//! ```

#![expect(clippy::print_stdout, reason = "it is an example")]

mod releases;

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient,
    model::{
        CallToolRequestParams, ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult,
        ElicitationAction, Implementation, JsonObject, ProtocolVersion,
    },
    service::RequestContext,
    transport::StreamableHttpClientTransport,
};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::{TcpListener, TcpStream},
    process::{Child, Command},
    task::JoinSet,
    time::sleep,
};

use self::releases::Releases;

const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/replicas/gateway.toml");
const NGINX: &str = include_str!("nginx.conf");

/// The addresses of the replicas in the file of nginx.
const REPLICAS: [&str; 3] = ["127.0.0.1:8081", "127.0.0.1:8082", "127.0.0.1:8083"];
const BALANCER: &str = "127.0.0.1:8080";

/// A gateway, which ends with this value.
struct Replica {
    address: String,
    _process: Child,
    /// Reads its log, or the process would block on a full pipe.
    _log: JoinSet<()>,
}

/// nginx, which ends with this value.
struct Balancer {
    address: String,
    folder: PathBuf,
    _process: Child,
}

/// A user who agrees.
struct Person;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let releases = Releases::default();
    let served = releases.serve().await?;
    let mut replicas = Vec::new();
    for _ in REPLICAS {
        replicas.push(Replica::start(&served.url).await?);
    }
    let balancer = Balancer::start(&replicas).await?;

    let transport =
        StreamableHttpClientTransport::from_uri(format!("http://{}/mcp", balancer.address));
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    let discover = ClientLifecycleMode::Discover { preferred_versions };
    let client = Person.serve_with_lifecycle(transport, discover).await?;

    let arguments = JsonObject::from_iter([("service".to_owned(), json!("shop"))]);
    let call = CallToolRequestParams::new("deploy_with_approval").with_arguments(arguments);
    // It calls again with the answer and the state it received.
    let result = client.call_tool(call).await?;
    let text = result.content.iter().find_map(|block| block.as_text());
    println!("\n{}\n", text.map_or("no text", |text| &text.text));
    drop(client);

    for (round, address) in balancer.rounds(2).await?.iter().enumerate() {
        let replica = replicas.iter().position(|replica| replica.address == *address);
        println!("round {} by replica {}", round + 1, replica.map_or(0, |place| place + 1));
    }
    println!("what was called: {}", releases.calls().join(", "));
    Ok(())
}

// === impl Replica ===

impl Replica {
    async fn start(releases: &str) -> Result<Self, Box<dyn Error>> {
        // Examples are in a folder beside it.
        let this_program = env::current_exe()?;
        let folder = this_program.ancestors().nth(2).ok_or("no folder of programs")?;
        let mut process = Command::new(folder.join("mcp-composite"))
            .args(["serve", CONFIG, "--http", "127.0.0.1:0"])
            .env("RELEASES_URL", releases)
            .env("STATE_KEY", "the same at each replica, and no secret")
            .env_remove("RUST_LOG")
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("build `mcp-composite` first: {error}"))?;
        let mut log = BufReader::new(process.stderr.take().ok_or("no log")?).lines();
        while let Some(line) = log.next_line().await? {
            if let Some((_, url)) = line.split_once("serving http://") {
                let address = url.trim_end_matches("/mcp").to_owned();
                let mut reading = JoinSet::new();
                reading.spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
                return Ok(Self { address, _process: process, _log: reading });
            }
        }
        Err("a gateway has ended".into())
    }
}

// === impl Balancer ===

impl Balancer {
    async fn start(replicas: &[Replica]) -> Result<Self, Box<dyn Error>> {
        let address = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.to_string();
        let mut file = NGINX.replace(BALANCER, &address);
        for (place, replica) in REPLICAS.iter().zip(replicas) {
            file = file.replace(place, &replica.address);
        }
        let folder = env::temp_dir().join(format!("replicas-{}", std::process::id()));
        fs::create_dir(&folder)?;
        fs::write(folder.join("nginx.conf"), file)?;
        let mut process =
            nginx(&folder).spawn().map_err(|error| format!("nginx cannot be started: {error}"))?;
        while TcpStream::connect(&address).await.is_err() {
            if let Some(status) = process.try_wait()? {
                return Err(format!("nginx has ended: {status}").into());
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(Self { address, folder, _process: process })
    }

    /// Returns the replicas that have answered calls, once there are `expected` of them.
    async fn rounds(&self, expected: usize) -> Result<Vec<String>, Box<dyn Error>> {
        loop {
            let log = fs::read_to_string(self.folder.join("access.log"))?;
            let calls = log.lines().filter(|line| line.contains("tools/call"));
            let rounds: Vec<_> =
                calls.filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect();
            // nginx writes a line after the client has its answer.
            if rounds.len() >= expected {
                return Ok(rounds);
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        // A leftover in the folder for temporary files is harmless.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn nginx(folder: &Path) -> Command {
    let mut command = Command::new("nginx");
    command.arg("-p").arg(folder).arg("-c").arg(folder.join("nginx.conf"));
    // One process, so that none is left behind; and only our log.
    command.args(["-e", "stderr", "-g", "master_process off;"]).kill_on_drop(true);
    command
}

// === impl Person ===

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_elicitation().build();
        ClientConfig::new(capabilities, Implementation::new("person", "0"))
    }

    async fn create_elicitation(
        &self,
        question: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        if let ElicitRequestParams::FormElicitationParams { message, .. } = question {
            println!("{message} Yes, to staging.");
        }
        let content = json!({ "environment": "staging" });
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
    }
}

//! Gateways behind nginx: a run that one of them suspends is resumed by another.
//!
//! The files are those of the example, `examples/replicas`.

use std::{
    collections::BTreeMap,
    fs,
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt, RoleClient, ServiceError,
    model::{
        CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig, Implementation,
        ProtocolVersion,
    },
    service::{ClientInitializeError, RunningService},
    transport::StreamableHttpClientTransport,
};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    clients::Client,
    gateway::gateway,
    ports::free_port,
    processes::Process,
    releases::{Releases, Served},
    support::{Folder, alone, example_file, until},
};

pub(crate) const TOOL: &str = "deploy_with_approval";
const KEY: &str = "one key of at least 32 bytes for all";

/// A gateway that can be killed, and restarted at the same address.
struct Replica {
    address: String,
    key: &'static str,
    options: &'static [&'static str],
    process: Process,
}

/// nginx and the gateways behind it.
struct Replicas {
    url: String,
    folder: Folder,
    releases: Releases,
    served: Served,
    replicas: Vec<Replica>,
    _nginx: Process,
}

/// A client of 2026-07-28 that handles questions itself.
struct ManualClient;

type Connection = RunningService<RoleClient, ManualClient>;

#[test]
fn each_round_is_answered_by_another_replica() {
    alone(async {
        let replicas = Replicas::start([KEY; 3], &[]).await;
        let client = replicas.connect().await;

        let state = begin(&client, "shop").await.unwrap();
        let result = answer(&client, "shop", &state).await.unwrap();

        assert_eq!(text(result), "shop 1.4.0 is in staging");
        let rounds = replicas.rounds(2);
        assert_ne!(rounds[0], rounds[1]);
        assert_eq!(replicas.releases.calls(), ["get_release shop", "deploy_release shop"]);
    });
}

#[test]
fn run_resumes_after_its_replica_is_killed() {
    alone(async {
        let mut replicas = Replicas::start([KEY; 3], &[]).await;
        let client = replicas.connect().await;
        let services = ["books", "shop", "toys"];
        let mut states = Vec::new();
        for service in services {
            states.push(begin(&client, service).await.unwrap());
        }

        let rounds = replicas.rounds(3);
        let killed =
            replicas.replicas.iter_mut().find(|replica| replica.address == rounds[0]).unwrap();
        killed.process.kill();
        for (service, state) in services.iter().zip(&states) {
            let result = answer(&client, service, state).await.unwrap();
            assert_eq!(text(result), format!("{service} 1.4.0 is in staging"));
        }

        // nginx has not noticed the loss, and has tried it first.
        let answered = &replicas.rounds(6)[3..];
        let tried = format!("{}, ", rounds[0]);
        assert!(answered.iter().any(|answered| answered.starts_with(&tried)), "{answered:?}");
        for service in services {
            assert_eq!(replicas.calls_of(service), ["get_release", "deploy_release"]);
        }
    });
}

#[test]
fn twenty_runs_complete_while_replicas_restart() {
    alone(async {
        let mut replicas = Replicas::start([KEY; 3], &[]).await;
        let mut callers = Vec::new();
        for _ in 0..20 {
            let (url, client) = (replicas.url.clone(), replicas.connect().await);
            callers.push(Caller { url, client, lost: 0 });
        }
        let mut runs = JoinSet::new();
        for (number, mut caller) in (0..).zip(callers) {
            runs.spawn(async move {
                let service = format!("service-{number}");
                let state = caller.begin(&service).await;
                sleep(Duration::from_millis(50 * number)).await;
                let result = caller.answer(&service, &state).await;
                assert_eq!(text(result), format!("{service} 1.4.0 is in staging"));
                (service, caller.lost)
            });
        }

        for index in [0, 1] {
            sleep(Duration::from_millis(200)).await;
            replicas.replicas[index].process.kill();
            sleep(Duration::from_millis(100)).await;
            let releases = replicas.served.url.clone();
            replicas.replicas[index].start_again(&releases);
        }
        let mut unharmed = 0;
        while let Some(run) = runs.join_next().await {
            let (service, lost) = run.unwrap();
            let calls = replicas.calls_of(&service);
            // A caller whose connection broke has called again, and counts that.
            assert!(calls.len() <= 2 + lost, "{service}: {calls:?}, lost {lost}");
            if lost == 0 {
                assert_eq!(calls, ["get_release", "deploy_release"], "{service}");
                unharmed += 1;
            }
        }
        assert!(unharmed >= 10, "{unharmed}");
    });
}

#[test]
fn replica_with_another_key_rejects_the_state() {
    alone(async {
        let other = "another key of at least 32 bytes";
        let replicas = Replicas::start([KEY, KEY, other], &[]).await;
        let client = replicas.connect().await;
        let state = begin(&client, "shop").await.unwrap();
        // One answer to each replica, whichever has asked.
        let mut answers = Vec::new();
        for _ in 0..3 {
            answers.push(answer(&client, "shop", &state).await);
        }

        let rounds = replicas.rounds(4);
        let odd = &replicas.replicas[2].address;
        let odd_is_first = rounds[0] == *odd;
        for (answer, replica) in answers.into_iter().zip(&rounds[1..]) {
            if (replica == odd) == odd_is_first {
                assert_eq!(text(answer.unwrap()), "shop 1.4.0 is in staging");
            } else {
                let Err(ServiceError::McpError(error)) = answer else { panic!("{answer:?}") };
                assert_eq!((error.code.0, &*error.message), (-32602, "invalid `requestState`"));
                assert_eq!(error.data, None);
            }
        }
        // Each replica with the key has resumed the run.
        let deployed = replicas.calls_of("shop").len() - 1;
        assert_eq!(deployed, if odd_is_first { 1 } else { 2 });
    });
}

#[test]
fn older_client_is_asked_by_the_replica_of_its_session() {
    alone(async {
        let replicas = Replicas::start([KEY; 3], &[]).await;
        let result = replicas.call_by_an_older_client().await;

        assert_eq!(result["content"][0]["text"], "shop 1.4.0 is in staging", "{result}");
        let log = replicas.log();
        let served: Vec<_> = log.lines().map(|line| line.split(' ').next().unwrap()).collect();
        // At least the handshake, the call and the answer.
        assert!(served.len() >= 4, "{log}");
        assert!(served.iter().all(|one| one == &served[0]), "{log}");
    });
}

#[test]
fn older_client_without_a_session_gets_an_elicitation_error() {
    alone(async {
        let replicas = Replicas::start([KEY; 3], &["--stateless"]).await;
        let result = replicas.call_by_an_older_client().await;

        assert_eq!(result["isError"], true, "{result}");
        let expected = "step `approval` failed: the user must be asked, and the client cannot: it does not declare the capability `elicitation`";
        assert_eq!(result["content"][0]["text"], expected);
        assert_eq!(replicas.calls_of("shop"), ["get_release"]);
    });
}

// === Calls ===

/// Calls until a question comes, and returns the state.
async fn begin(client: &Connection, service: &str) -> Result<String, ServiceError> {
    match client.call_tool_once(call(service)).await? {
        CallToolResponse::InputRequired(asks) => {
            let questions: Vec<_> =
                asks.input_requests.iter().flatten().map(|(key, _)| key).collect();
            assert_eq!(questions, ["approval"]);
            Ok(asks.request_state.unwrap())
        }
        response => panic!("{response:?}"),
    }
}

/// Accepts the question.
async fn answer(
    client: &Connection,
    service: &str,
    state: &str,
) -> Result<CallToolResponse, ServiceError> {
    let yes = json!({ "action": "accept", "content": { "environment": "staging" } });
    let answers = BTreeMap::from([("approval".to_owned(), yes)]);
    let call = call(service).with_input_responses(answers).with_request_state(state);
    client.call_tool_once(call).await
}

fn call(service: &str) -> CallToolRequestParams {
    let arguments = json!({ "service": service }).as_object().cloned().unwrap();
    CallToolRequestParams::new(TOOL).with_arguments(arguments)
}

#[track_caller]
fn text(response: CallToolResponse) -> String {
    let CallToolResponse::Complete(result) = response else { panic!("{response:?}") };
    result.content[0].as_text().unwrap().text.clone()
}

async fn connect(url: &str) -> Result<Connection, ClientInitializeError> {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    let lifecycle = ClientLifecycleMode::Discover { preferred_versions };
    let transport = StreamableHttpClientTransport::from_uri(url);
    ManualClient.serve_with_lifecycle(transport, lifecycle).await
}

/// A caller that calls again if its connection breaks.
struct Caller {
    url: String,
    client: Connection,
    lost: usize,
}

// === impl Caller ===

impl Caller {
    async fn begin(&mut self, service: &str) -> String {
        loop {
            match begin(&self.client, service).await {
                Ok(state) => return state,
                Err(error) => self.lose(error).await,
            }
        }
    }

    async fn answer(&mut self, service: &str, state: &str) -> CallToolResponse {
        loop {
            match answer(&self.client, service, state).await {
                Ok(response) => return response,
                Err(error) => self.lose(error).await,
            }
        }
    }

    async fn lose(&mut self, error: ServiceError) {
        assert!(!matches!(error, ServiceError::McpError(_)), "{error}");
        self.lost += 1;
        self.client = loop {
            match connect(&self.url).await {
                Ok(client) => break client,
                // The next one may be down as well.
                Err(error) => assert!(self.lost < 10, "{error}"),
            }
            self.lost += 1;
        };
    }
}

// === impl ManualClient ===

impl ClientHandler for ManualClient {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_elicitation().build();
        ClientConfig::new(capabilities, Implementation::new("asked", "0"))
    }
}

// === impl Replica ===

impl Replica {
    fn start(
        address: String,
        key: &'static str,
        options: &'static [&'static str],
        releases: &str,
    ) -> Self {
        let process = Self::run(&address, key, options, releases);
        Self { address, key, options, process }
    }

    fn start_again(&mut self, releases: &str) {
        self.process = Self::run(&self.address, self.key, self.options, releases);
    }

    fn run(address: &str, key: &str, options: &[&str], releases: &str) -> Process {
        let mut command = gateway(&example_file("replicas/gateway.toml"));
        command.args(["--http", address]).args(options);
        let process = Process::start(command.env("RELEASES_URL", releases).env("STATE_KEY", key));
        process.errors.after("serving ");
        process
    }
}

// === impl Replicas ===

impl Replicas {
    async fn start(keys: [&'static str; 3], options: &'static [&'static str]) -> Self {
        let releases = Releases::default();
        let served = releases.serve().await.unwrap();
        let replicas: Vec<_> = keys
            .into_iter()
            .map(|key| {
                let address = format!("127.0.0.1:{}", free_port());
                Replica::start(address, key, options, &served.url)
            })
            .collect();

        let folder = Folder::new();
        let address = format!("127.0.0.1:{}", free_port());
        let mut file = fs::read_to_string(example_file("replicas/nginx.conf")).unwrap();
        file = file.replace("127.0.0.1:8080", &address);
        for (port, replica) in (8081..).zip(&replicas) {
            file = file.replace(&format!("127.0.0.1:{port}"), &replica.address);
        }
        let nginx = nginx(&folder.path(""), &folder.write("nginx.conf", &file));
        until("nginx", || TcpStream::connect(&address).is_ok());
        let url = format!("http://{address}/mcp");
        Self { url, folder, releases, served, replicas, _nginx: nginx }
    }

    async fn connect(&self) -> Connection {
        connect(&self.url).await.unwrap()
    }

    /// Returns the answer to an older client, which accepts if it is asked.
    async fn call_by_an_older_client(&self) -> Value {
        let script = json!({
            "connect": { "url": self.url },
            "elicit": { "action": "accept", "content": { "environment": "staging" } },
            "steps": [{ "call_tool": { "name": TOOL, "arguments": { "service": "shop" } } }],
        });
        let performed = tokio::task::spawn_blocking(|| Client::TypeScript1.perform(script));
        performed.await.unwrap()[1]["result"].take()
    }

    /// Returns the log of nginx.
    fn log(&self) -> String {
        fs::read_to_string(self.folder.path("access.log")).unwrap()
    }

    /// Waits for `expected` calls, and returns the replicas that each was sent to: a failed one and
    /// the next.
    #[track_caller]
    fn rounds(&self, expected: usize) -> Vec<String> {
        let mut rounds = Vec::new();
        // nginx writes it after the client has its answer.
        until("the log of nginx", || {
            let log = self.log();
            let calls = log
                .lines()
                .filter_map(|line| line.strip_suffix(" 200 tools/call deploy_with_approval"));
            rounds = calls.map(str::to_owned).collect();
            rounds.len() >= expected
        });
        assert_eq!(rounds.len(), expected);
        rounds
    }

    /// Returns the tools that were called for a service, in order.
    fn calls_of(&self, service: &str) -> Vec<String> {
        let calls = self.releases.calls();
        let calls = calls.iter().filter_map(|call| call.strip_suffix(&format!(" {service}")));
        calls.map(str::to_owned).collect()
    }
}

fn nginx(folder: &Path, file: &Path) -> Process {
    let mut command = Command::new("nginx");
    command.arg("-p").arg(folder).arg("-c").arg(file).args(["-e", "stderr"]);
    Process::start(command.stdin(Stdio::null()).stdout(Stdio::null()))
}

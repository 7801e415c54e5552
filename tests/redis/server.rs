//! A Redis server for one test.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use tokio::time::Instant;

use crate::{ports::free_port, programs::signal, support::HANG};

/// A server that stores nothing on disk, and ends with the test.
pub(crate) struct Server {
    process: Child,
    port: u16,
    arguments: Vec<&'static str>,
}

/// A proxy in front of a server, which can lose answers and delay requests.
pub(crate) struct Gap {
    port: u16,
    loses: Arc<AtomicBool>,
    holds: Arc<Mutex<Option<Holding>>>,
}

/// A held request.
struct Holding {
    until: mpsc::Receiver<()>,
    /// Whether the client of the request loses its connection.
    hangs_up: bool,
}

// === impl Server ===

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(arguments: &[&'static str]) -> Self {
        let port = free_port();
        let process = spawn(port, arguments);
        Self { process, port, arguments: arguments.to_vec() }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Stops it from answering.
    pub(crate) fn pause(&self) {
        assert!(signal(self.process.id().into(), "STOP"));
    }

    pub(crate) fn resume(&self) {
        assert!(signal(self.process.id().into(), "CONT"));
    }

    /// Kills it like a crash: all its data is lost.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Restarts it, at the same address.
    pub(crate) fn restart(&mut self) {
        self.process = spawn(self.port, &self.arguments);
    }

    /// Returns its answer to a command as typed by a user.
    pub(crate) fn tell(&self, command: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(stream, "{command}\r\nQUIT\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer);
        answer.strip_suffix("+OK\r\n").unwrap().to_owned()
    }

    /// Returns how often it has run a script.
    pub(crate) fn runs(&self) -> u64 {
        let stats = self.tell("INFO commandstats");
        let (_, calls) = stats.split_once("cmdstat_evalsha:calls=").unwrap();
        calls.split(',').next().unwrap().parse().unwrap()
    }

    /// Returns the number of bytes that it has sent.
    pub(crate) fn sent_bytes(&self) -> u64 {
        let stats = self.tell("INFO stats");
        let (_, bytes) = stats.split_once("total_net_output_bytes:").unwrap();
        bytes.lines().next().unwrap().parse().unwrap()
    }

    /// Returns all its keys.
    pub(crate) fn keys(&self) -> Vec<String> {
        let answer = self.tell("KEYS *");
        let lines = answer.lines().filter(|line| !line.starts_with(['*', '$']));
        lines.map(str::to_owned).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have been killed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(port: u16, arguments: &[&str]) -> Child {
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
    command.args(["--save", "", "--appendonly", "no"]).args(arguments);
    let mut process = command.stdout(Stdio::null()).spawn().unwrap_or_else(|error| {
        panic!("`redis-server` cannot be started: {error}; expected it to be installed, as with `apt-get install redis-server`")
    });
    let start = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert_eq!(process.try_wait().unwrap(), None, "`redis-server` has ended");
        assert!(start.elapsed() < HANG, "`redis-server` does not listen");
        thread::sleep(Duration::from_millis(5));
    }
    process
}

// === impl Gap ===

impl Gap {
    pub(crate) fn before(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, behind) = (listener.local_addr().unwrap().port(), server.port);
        let (loses, holds) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Option<_>>>::default());
        let (losing, holding) = (Arc::clone(&loses), Arc::clone(&holds));
        thread::spawn(move || {
            for near in listener.incoming().map(Result::unwrap) {
                let far = TcpStream::connect(("127.0.0.1", behind)).unwrap();
                let (from_near, to_far) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let (holding, hung_up) = (Arc::clone(&holding), near.try_clone().unwrap());
                thread::spawn(move || {
                    pass(from_near, to_far, || {
                        let held: Option<Holding> = holding.lock().unwrap().take();
                        if let Some(Holding { until, hangs_up }) = held {
                            if hangs_up {
                                hung_up.shutdown(Shutdown::Both).unwrap();
                            }
                            // The test releases it by dropping the other end.
                            let _ = until.recv();
                        }
                        true
                    });
                });
                let losing = Arc::clone(&losing);
                thread::spawn(move || pass(far, near, || !losing.swap(false, Ordering::Relaxed)));
            }
        });
        Self { port, loses, holds }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Loses the next answer and its connection.
    pub(crate) fn lose_an_answer(&self) {
        self.loses.store(true, Ordering::Relaxed);
    }

    /// Holds the next request until the returned value is dropped.
    pub(crate) fn hold_a_request(&self) -> impl Sized + use<> {
        self.hold(false)
    }

    /// The same, and the client of the request loses its connection.
    pub(crate) fn hold_a_request_and_hang_up(&self) -> impl Sized + use<> {
        self.hold(true)
    }

    fn hold(&self, hangs_up: bool) -> mpsc::Sender<()> {
        let (release, until) = mpsc::channel();
        *self.holds.lock().unwrap() = Some(Holding { until, hangs_up });
        release
    }

    /// Returns whether it has lost the answer.
    pub(crate) fn has_lost(&self) -> bool {
        !self.loses.load(Ordering::Relaxed)
    }
}

/// Forwards data until the end, or until `passes` returns `false`.
fn pass(mut from: TcpStream, mut to: TcpStream, passes: impl Fn() -> bool) {
    let mut bytes = [0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if !passes() || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

//! A load balancer in front of the processes that run tasks.

use tokio::{io::copy_bidirectional, net::TcpStream, sync::watch, task::JoinSet};

use super::listener;

/// A load balancer that forwards all connections to one process.
pub(crate) struct Balancer {
    pub(crate) port: u16,
    process: watch::Sender<u16>,
}

// === impl Balancer ===

impl Balancer {
    /// Starts a load balancer, which runs until the test ends.
    pub(crate) fn start() -> Self {
        let (process, processes) = watch::channel(0);
        let port = listener::serve(|listener| async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(forward(client, processes.clone()));
            }
        });
        Self { port, process }
    }

    /// Forwards new connections to the process with this port, and closes the others.
    pub(crate) fn forward_to(&self, port: u16) {
        self.process.send_replace(port);
    }
}

async fn forward(mut client: TcpStream, mut processes: watch::Receiver<u16>) {
    let port = *processes.borrow_and_update();
    let Ok(mut process) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut process) => (),
        _ = processes.changed() => (),
    }
}

//! A listener in front of a process or a server.

use std::thread;

use tokio::{net::TcpListener, runtime::Builder};

/// Serves a listener in a thread until the test ends. Returns its port.
pub(crate) fn serve<F: Future>(serve: impl FnOnce(TcpListener) -> F + Send + 'static) -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { serve(TcpListener::from_std(listener).unwrap()).await });
    });
    port
}

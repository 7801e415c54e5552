//! Ports for programs that cannot choose one and report it.

use std::{
    net::TcpListener,
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// Ports below those that systems give to outgoing connections, any of which could take a port
/// before the program listens.
const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

/// Returns a port that is free, and that this process does not return again.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Other test processes begin elsewhere.
    let start = process::id().wrapping_mul(97);
    loop {
        let next = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + next % COUNT).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

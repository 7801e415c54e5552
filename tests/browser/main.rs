//! The page of the program, in a browser.
//!
//! `cargo test --all-features --test browser` installs Chromium and its driver and runs the tests.
//! Requires Node and npm, and a Debian system or `CHROMIUM` with the path of the browser.

#![expect(clippy::unwrap_used, reason = "what fails in a helper of a test fails the test")]

mod browser;
mod gateway;
mod page;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "../it/programs.rs"]
mod programs;

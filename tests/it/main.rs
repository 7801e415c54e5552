//! Everything that can be seen from outside, over connections in memory.

mod handler;
mod serve;
mod support;

//! The log of runs, for the page and for recordings.

mod entry;
mod log;
mod reader;
mod record;
mod recording;
#[cfg(test)]
mod tests;

pub(crate) use self::{
    entry::Cancelled,
    log::RunLog,
    reader::Recording,
    record::{BranchRecord, CompositeRecord, ParentRecord, RunRecord},
    recording::Recorder,
};

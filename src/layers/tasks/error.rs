//! The errors of requests about tasks.

use rmcp::model::ErrorData;
use thiserror::Error;

use super::shared::store::TaskStoreError;

/// The error for a task ID that is unknown, has expired, or belongs to another caller. The message
/// is the same in all cases, so that clients cannot probe for the tasks of other callers.
#[derive(Debug)]
pub(super) struct UnknownTask;

/// The reason why a task cannot be created, or cannot store more data.
#[derive(Debug, Error)]
pub(super) enum LimitReached {
    #[error("too many tasks: {max} have not ended; retry later")]
    Unfinished { max: usize },
    #[error("too many tasks: there are {max}; retry later")]
    Tasks { max: usize },
    #[error("the tasks hold more than {max} bytes; retry later")]
    Bytes { max: usize },
    #[error("the server is shutting down")]
    Closed,
    #[error("internal error")]
    NoRandomNumbers,
}

impl From<UnknownTask> for ErrorData {
    fn from(UnknownTask: UnknownTask) -> Self {
        Self::invalid_params("unknown task", None)
    }
}

impl From<LimitReached> for ErrorData {
    fn from(error: LimitReached) -> Self {
        Self::internal_error(error.to_string(), None)
    }
}

impl From<TaskStoreError> for ErrorData {
    fn from(error: TaskStoreError) -> Self {
        match error {
            TaskStoreError::Lost | TaskStoreError::Unavailable(_) => Self::internal_error(
                "the state of the task is not available at the moment; retry later",
                None,
            ),
            error => Self::internal_error(error.to_string(), None),
        }
    }
}

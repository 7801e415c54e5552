//! The errors of requests about tasks.

use rmcp::model::ErrorData;
use thiserror::Error;

use super::shared::store::TaskStoreError;

/// There is no task with this ID that the caller may access. Its text does not depend on the
/// reason, so that clients cannot probe for the tasks of others.
#[derive(Debug)]
pub(super) struct UnknownTask;

/// The reason why there is no room for a task or its data.
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

//! Batches of tasks: what became of each.

use std::sync::Arc;

use hydrant_endpoint::{BatchFailure, BatchHandle, PartState};
use parking_lot::Mutex;

use crate::failure::{BUSY, EngineFailure, INVALID_ARGUMENT, Result, TOO_MANY};

/// A batch, to which tasks are added until it is freed.
pub(crate) struct TaskBatch {
    /// The most tasks.
    capacity: usize,
    tasks: Mutex<BatchTasks>,
}

#[derive(Default)]
struct BatchTasks {
    count: usize,
    /// In the order of their tasks.
    submissions: Vec<TaskSubmission>,
}

/// The tasks of one call.
struct TaskSubmission {
    /// The number of the first task.
    first: usize,
    /// The bytes of each task.
    lengths: Box<[u64]>,
    stage: SubmissionStage,
}

enum SubmissionStage {
    /// A thread looks the targets up, or waits for the end.
    Held,
    UnderWay(StartedTransfer),
    Done,
    /// Nothing of it lands any more.
    Failed(SubmissionFailure),
}

/// The transfer of a submission.
pub(crate) struct StartedTransfer {
    pub(crate) handle: BatchHandle,
    pub(crate) parts: TransferParts,
}

/// The parts of a transfer that are tasks. Tasks without bytes are none.
#[derive(Clone)]
pub(crate) enum TransferParts {
    /// Each task is a part.
    All,
    /// The number of parts before each task.
    Some(Arc<[u32]>),
}

/// The failure of a submission.
pub(crate) enum SubmissionFailure {
    /// Nothing was transferred, because of the task with this index.
    Refused { culprit: usize, text: String },
    /// Some of it was transferred.
    Stopped {
        failure: BatchFailure,
        parts: TransferParts,
    },
    /// All of it was transferred, but the notification was not sent.
    Unsaid { text: String },
}

/// The state of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TaskState {
    Waiting,
    /// All its bytes are there.
    Completed(u64),
    Failed,
}

/// Tasks that were added to a batch, whose transfer is to begin.
pub(crate) struct AddedTasks<'a> {
    batch: &'a TaskBatch,
    first: usize,
}

impl TaskBatch {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            tasks: Mutex::default(),
        }
    }

    /// Adds tasks with these lengths.
    ///
    /// # Errors
    /// TOO_MANY.
    pub(crate) fn add(&self, lengths: Box<[u64]>) -> Result<AddedTasks<'_>> {
        let mut tasks = self.tasks.lock();
        let count = tasks.count.saturating_add(lengths.len());
        if count > self.capacity {
            let text = format!(
                "{} more tasks than {} are above the batch's limit of {}",
                lengths.len(),
                tasks.count,
                self.capacity
            );
            return Err(EngineFailure::new(TOO_MANY, text));
        }
        let first = tasks.count;
        tasks.count = count;
        if !lengths.is_empty() {
            tasks.submissions.push(TaskSubmission {
                first,
                lengths,
                stage: SubmissionStage::Held,
            });
        }
        Ok(AddedTasks { batch: self, first })
    }

    /// Returns the state of a task.
    ///
    /// # Errors
    /// If there is no such task.
    pub(crate) fn state(&self, task: usize) -> Result<TaskState> {
        self.look(task, |submission, index| submission.state(index))
    }

    /// Returns the reason why a task failed, if it did.
    ///
    /// # Errors
    /// If there is no such task.
    pub(crate) fn reason(&self, task: usize) -> Result<Option<String>> {
        self.look(task, |submission, index| {
            let has_failed = submission.state(index) == TaskState::Failed;
            has_failed.then(|| submission.reason(index))
        })
    }

    fn look<T>(&self, task: usize, look: impl FnOnce(&TaskSubmission, usize) -> T) -> Result<T> {
        let mut tasks = self.tasks.lock();
        if task >= tasks.count {
            let text = format!("the batch has {} tasks, and no task {task}", tasks.count);
            return Err(EngineFailure::new(INVALID_ARGUMENT, text));
        }
        let behind = (tasks.submissions).partition_point(|submission| submission.first <= task);
        let submission = &mut tasks.submissions[behind - 1];
        submission.settle();
        Ok(look(submission, task - submission.first))
    }

    /// Checks that all tasks have ended.
    ///
    /// # Errors
    /// BUSY.
    pub(crate) fn check_over(&self) -> Result<()> {
        let mut tasks = self.tasks.lock();
        for submission in &mut tasks.submissions {
            submission.settle();
            let first = submission.first;
            if !submission.stage.is_over() {
                let text = format!("task {first} of the batch is under way");
                return Err(EngineFailure::new(BUSY, text));
            }
        }
        Ok(())
    }
}

impl AddedTasks<'_> {
    /// Waits until the tasks before these have ended. Returns whether none failed.
    pub(crate) fn wait_for_others(&self) -> bool {
        let mut all_done = true;
        for at in 0.. {
            let mut tasks = self.batch.tasks.lock();
            let Some(submission) = tasks.submissions.get_mut(at) else {
                break;
            };
            if submission.first >= self.first {
                break;
            }
            if matches!(submission.stage, SubmissionStage::UnderWay(_)) {
                let stage = std::mem::replace(&mut submission.stage, SubmissionStage::Held);
                drop(tasks);
                let stage = stage.wait();
                tasks = self.batch.tasks.lock();
                tasks.submissions[at].stage = stage;
            }
            all_done &= !matches!(tasks.submissions[at].stage, SubmissionStage::Failed(_));
        }
        all_done
    }

    /// Notes that the transfer has begun.
    pub(crate) fn begin(self, transfer: StartedTransfer) {
        self.set(SubmissionStage::UnderWay(transfer));
    }

    /// Notes that nothing is transferred.
    pub(crate) fn fail(self, culprit: usize, text: String) {
        let failure = SubmissionFailure::Refused { culprit, text };
        self.set(SubmissionStage::Failed(failure));
    }

    fn set(self, stage: SubmissionStage) {
        let mut tasks = self.batch.tasks.lock();
        let place =
            (tasks.submissions).binary_search_by_key(&self.first, |submission| submission.first);
        if let Ok(place) = place {
            tasks.submissions[place].stage = stage;
        }
    }
}

impl SubmissionStage {
    fn is_over(&self) -> bool {
        matches!(self, Self::Done | Self::Failed(_))
    }

    /// Waits until a transfer has ended.
    fn wait(self) -> Self {
        let Self::UnderWay(StartedTransfer { handle, parts }) = self else {
            return self;
        };
        match handle.wait() {
            Ok(()) => Self::Done,
            Err(failure) => {
                let is_done = |part| failure.part(part) == Some(PartState::Done);
                Self::Failed(match (0..failure.parts()).all(is_done) {
                    true => SubmissionFailure::Unsaid {
                        text: failure.cause().to_string(),
                    },
                    false => SubmissionFailure::Stopped { failure, parts },
                })
            }
        }
    }
}

impl TaskSubmission {
    /// Notes the end of the transfer, if it has ended.
    fn settle(&mut self) {
        // A program that polls lends its time to the copy.
        if matches!(&self.stage, SubmissionStage::UnderWay(transfer) if transfer.handle.help()) {
            let stage = std::mem::replace(&mut self.stage, SubmissionStage::Held);
            self.stage = stage.wait();
        }
    }

    fn state(&self, index: usize) -> TaskState {
        let len = self.lengths[index];
        match &self.stage {
            SubmissionStage::Held | SubmissionStage::UnderWay(_) => TaskState::Waiting,
            SubmissionStage::Done => TaskState::Completed(len),
            SubmissionStage::Failed(SubmissionFailure::Stopped { failure, parts }) => {
                let part = match parts {
                    TransferParts::All => index,
                    TransferParts::Some(before) => before[index] as usize,
                };
                match len == 0 || failure.part(part) == Some(PartState::Done) {
                    true => TaskState::Completed(len),
                    false => TaskState::Failed,
                }
            }
            SubmissionStage::Failed(_) => TaskState::Failed,
        }
    }

    fn reason(&self, index: usize) -> String {
        match &self.stage {
            SubmissionStage::Failed(SubmissionFailure::Refused { culprit, text }) => {
                match *culprit == index {
                    true => text.clone(),
                    false => format!(
                        "nothing of the submission was transferred, because of task {}: {text}",
                        self.first + culprit
                    ),
                }
            }
            SubmissionStage::Failed(SubmissionFailure::Stopped { failure, .. }) => {
                failure.cause().to_string()
            }
            SubmissionStage::Failed(SubmissionFailure::Unsaid { text }) => {
                format!("the data is there, but the notification was not sent: {text}")
            }
            _ => String::new(),
        }
    }
}

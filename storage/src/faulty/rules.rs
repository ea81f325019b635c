use std::time::Duration;

use types::ErrorKind;

use crate::{Operation, Path};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing is done; the operation fails with this kind.
    Fail(ErrorKind),
    /// The operation is done after this time. For logs the thread blocks in real time.
    Delay(Duration),
    /// Half of the bytes are written, then the operation fails. What is atomic is not done at all.
    Tear,
    /// The operation is done and reported as failed: its caller cannot know the outcome.
    FailAfter,
}

/// Which of the matching operations a rule fires for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Every,
    Only(u64),
    From(u64),
}

/// What goes wrong, and when: by kind of operation, path, and count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    action: Action,
    operation: Option<Operation>,
    path_part: String,
    which: Which,
    matched: u64,
}

impl Rule {
    /// For every operation on every path; the other methods narrow it.
    pub fn new(action: Action) -> Rule {
        Rule { action, operation: None, path_part: String::new(), which: Which::Every, matched: 0 }
    }

    /// Only for this kind of operation.
    #[must_use]
    pub fn on(mut self, operation: Operation) -> Rule {
        self.operation = Some(operation);
        self
    }

    /// Only for paths that contain this text.
    #[must_use]
    pub fn path(mut self, part: &str) -> Rule {
        part.clone_into(&mut self.path_part);
        self
    }

    /// Only for the `count`-th matching operation, from 1.
    #[must_use]
    pub fn nth(mut self, count: u64) -> Rule {
        assert!(count > 0, "operations are counted from 1");
        self.which = Which::Only(count);
        self
    }

    /// Only for the `count`-th matching operation, from 1, and all after it.
    #[must_use]
    pub fn from(mut self, count: u64) -> Rule {
        assert!(count > 0, "operations are counted from 1");
        self.which = Which::From(count);
        self
    }

    pub(super) fn action(&self) -> Action {
        self.action
    }

    /// Counts the operation if it matches, and says whether this is the one.
    pub(super) fn fires(&mut self, operation: Operation, path: &Path) -> bool {
        let matches = self.operation.is_none_or(|wanted| wanted == operation)
            && path.as_str().contains(&self.path_part);
        if !matches {
            return false;
        }
        self.matched += 1;
        match self.which {
            Which::Every => true,
            Which::Only(count) => self.matched == count,
            Which::From(count) => self.matched >= count,
        }
    }
}

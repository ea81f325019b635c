use std::sync::Arc;

use tokio::sync::broadcast;

use crate::Revision;

/// A hint that something changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// A transaction changed these keys, all of them under the watched prefix.
    Changed {
        /// The transaction.
        revision: Revision,
        /// What it put or deleted.
        keys: Vec<String>,
    },
    /// Hints were lost: read everything again.
    Resync,
}

/// What one transaction changed.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    pub(crate) revision: Revision,
    pub(crate) keys: Arc<[String]>,
}

/// A stream of hints. They may be late; the truth is what a read says.
#[derive(Debug)]
pub struct Watch {
    prefix: String,
    notices: broadcast::Receiver<Notice>,
}

impl Watch {
    pub(crate) fn new(prefix: &str, notices: broadcast::Receiver<Notice>) -> Watch {
        Watch { prefix: prefix.to_owned(), notices }
    }

    /// Waits for the next hint. `None` when the coordinator has ended.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        loop {
            match self.notices.recv().await {
                Ok(Notice { revision, keys }) => {
                    let matches = |key: &&String| key.starts_with(&self.prefix);
                    let keys: Vec<String> = keys.iter().filter(matches).cloned().collect();
                    if !keys.is_empty() {
                        return Some(WatchEvent::Changed { revision, keys });
                    }
                }
                Err(broadcast::error::RecvError::Lagged(_)) => return Some(WatchEvent::Resync),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

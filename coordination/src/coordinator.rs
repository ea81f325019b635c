//! The seam: what the cluster asks of a coordinator, embedded or etcd.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use types::SessionId;

use crate::limits::{OPERATIONS_MAX, TRANSACTION_BYTES_MAX};
use crate::{Error, Result, Watch};

/// Orders all transactions of one coordinator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Revision(u64);

impl Revision {
    /// Before the first transaction.
    pub const ZERO: Revision = Revision(0);

    /// Wraps a stored or received number.
    pub const fn new(raw: u64) -> Revision {
        Revision(raw)
    }

    /// The bare number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The revision of the next transaction.
    pub fn next(self) -> Revision {
        Revision(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}

/// A value and when it came to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// The value.
    pub value: Bytes,
    /// The transaction that put the key where there was none.
    pub created: Revision,
    /// The last transaction that put it.
    pub modified: Revision,
    /// The session whose end deletes it.
    pub session: Option<SessionId>,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyed {
    /// The key.
    pub key: String,
    /// Its value.
    pub found: Versioned,
}

/// A part of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Ascending by key.
    pub entries: Vec<Keyed>,
    /// Are there more? They come after the last key here.
    pub more: bool,
    /// The state that the page shows. Pages of one listing may differ in it.
    pub revision: Revision,
}

/// What a guard expects of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// There is no such key.
    Absent,
    /// There is one.
    Present,
    /// It is there and was last changed by this transaction.
    ModifiedAt(Revision),
}

/// A condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The key.
    pub key: String,
    /// What must hold of it.
    pub expect: Expect,
}

/// A part of what a transaction does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Sets a value.
    Put {
        /// The key.
        key: String,
        /// Its new value.
        value: Bytes,
        /// The session whose end deletes it.
        session: Option<SessionId>,
    },
    /// Removes a key; nothing happens when it is absent.
    Delete {
        /// The key.
        key: String,
    },
}

impl Change {
    /// The key that it changes.
    pub fn key(&self) -> &str {
        match self {
            Change::Put { key, .. } | Change::Delete { key } => key,
        }
    }
}

/// Changes that happen all at once if all guards hold, and else not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The conditions.
    pub guards: Vec<Guard>,
    /// The changes; no key twice.
    pub changes: Vec<Change>,
}

impl Transaction {
    /// Without conditions and changes.
    pub fn new() -> Transaction {
        Transaction::default()
    }

    /// Adds a condition.
    #[must_use]
    pub fn guard(mut self, key: impl Into<String>, expect: Expect) -> Transaction {
        let key = key.into();
        self.guards.push(Guard { key, expect });
        self
    }

    /// Adds a change that sets a value.
    #[must_use]
    pub fn put(mut self, key: impl Into<String>, value: impl Into<Bytes>) -> Transaction {
        let (key, value) = (key.into(), value.into());
        let session = None;
        self.changes.push(Change::Put { key, value, session });
        self
    }

    /// Adds a change that sets a value until `session` ends.
    #[must_use]
    pub fn put_bound(
        mut self,
        key: impl Into<String>,
        value: impl Into<Bytes>,
        session: SessionId,
    ) -> Transaction {
        let (key, value) = (key.into(), value.into());
        let session = Some(session);
        self.changes.push(Change::Put { key, value, session });
        self
    }

    /// Adds a change that removes a key.
    #[must_use]
    pub fn delete(mut self, key: impl Into<String>) -> Transaction {
        self.changes.push(Change::Delete { key: key.into() });
        self
    }

    /// Checks what every coordinator refuses.
    ///
    /// # Errors
    /// `Invalid`: more than [`OPERATIONS_MAX`] guards or changes, more than
    /// [`TRANSACTION_BYTES_MAX`] bytes, a key changed twice, an empty key, no change at all.
    pub fn check(&self) -> Result<()> {
        let most = self.guards.len().max(self.changes.len());
        if most > OPERATIONS_MAX {
            return Err(Error::Invalid(format!(
                "{most} operations; the limit is {OPERATIONS_MAX}"
            )));
        }
        if self.changes.is_empty() {
            return Err(Error::Invalid("it changes nothing".to_owned()));
        }
        let guarded = self.guards.iter().map(|guard| guard.key.len());
        let changed = self.changes.iter().map(|change| match change {
            Change::Put { key, value, .. } => key.len() + value.len(),
            Change::Delete { key } => key.len(),
        });
        let bytes: usize = guarded.chain(changed).sum();
        if bytes > TRANSACTION_BYTES_MAX {
            return Err(Error::Invalid(format!(
                "{bytes} bytes; the limit is {TRANSACTION_BYTES_MAX}"
            )));
        }
        let mut keys = BTreeSet::new();
        for change in &self.changes {
            if change.key().is_empty() {
                return Err(Error::Invalid("a key is empty".to_owned()));
            }
            if !keys.insert(change.key()) {
                return Err(Error::Invalid(format!("it changes {:?} twice", change.key())));
            }
        }
        Ok(())
    }
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It happened, durably.
    Committed {
        /// Its place in the order of all.
        revision: Revision,
    },
    /// A guard did not hold; nothing happened.
    Refused {
        /// What the guarded keys hold, in the order of the guards.
        current: Vec<Option<Versioned>>,
    },
}

impl Outcome {
    /// The revision, if it was committed.
    pub fn committed(&self) -> Option<Revision> {
        match self {
            Outcome::Committed { revision } => Some(*revision),
            Outcome::Refused { .. } => None,
        }
    }
}

/// Keeps keys (text, by convention paths like `/tables/t`) and values, changes them in guarded
/// transactions, and tells what changed. Reads are linearizable: they see every transaction that
/// was answered before they began.
#[async_trait]
pub trait Coordinator: Send + Sync + 'static {
    /// The value of a key.
    async fn get(&self, key: &str) -> Result<Option<Versioned>>;

    /// Keys that begin with `prefix` and sort after `after` (all for ""), ascending, at most
    /// `limit` and at most [`crate::PAGE_MAX`] of them.
    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page>;

    /// Carries out a transaction if its guards hold.
    ///
    /// # Errors
    /// `Invalid` and `SessionEnded`, with nothing changed. `Poisoned`, or a broken connection: the
    /// outcome is unknown.
    async fn commit(&self, transaction: Transaction) -> Result<Outcome>;

    /// Opens a session. Keys put with its id are deleted when it ends: by
    /// [`Coordinator::end_session`], or when its process was gone for `ttl`.
    async fn open_session(&self, ttl: Duration) -> Result<SessionId>;

    /// Ends a session now, with all keys bound to it. One that has ended is not an error.
    async fn end_session(&self, session: SessionId) -> Result<()>;

    /// Starts a stream of hints about keys that begin with `prefix`. Transactions committed after
    /// this returns are hinted at, or a resync is.
    async fn watch(&self, prefix: &str) -> Result<Watch>;
}

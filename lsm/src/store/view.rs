use std::fmt;
use std::sync::Arc;

use types::SeqNo;

use super::{State, Store};

/// What one read pins: the version, the memtables, and the number up to which it sees. Holding it
/// keeps its SSTables and memtables alive: a long scan takes a new one now and then.
#[derive(Clone)]
pub struct ReadView {
    store: Arc<Store>,
    state: Arc<State>,
    seq: SeqNo,
}

impl ReadView {
    pub(super) fn new(store: Arc<Store>, state: Arc<State>, seq: SeqNo) -> ReadView {
        ReadView { store, state, seq }
    }

    /// It sees everything up to this number, and nothing after.
    pub fn seq(&self) -> SeqNo {
        self.seq
    }

    /// The range's storage.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }
}

impl fmt::Debug for ReadView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadView").field("seq", &self.seq).finish_non_exhaustive()
    }
}

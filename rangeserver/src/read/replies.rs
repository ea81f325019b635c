//! One running read: pulled reply by reply.
//!
//! 1. Pin a view of the range.
//! 2. For each asked run of rows: scan its visible cells, and encode them.
//! 3. A reply is ready when the encoder's message is large enough, or at the end. Between two
//!    pulls nothing runs.
//! 4. A value that lies outside its table's blocks is read and handed on piece by piece.
//! 5. Between two pulls and between two rows the view is parked ([`super::parking`]), and taken
//!    away when it is outdated: the read goes on in a new one.
//! 6. At a row's start an old view is replaced by a new one, so that a long scan does not keep
//!    files and memtables alive.
//!
//! Invariants
//! - Memory is bounded by one message, one held chunk and one piece of a value.
//! - All cells of a row come from one view. A row with too many bytes is an error when they are
//!   met.
//! - Whether the range is still served is checked after the cells were read, before they are
//!   handed on.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use client::{ReadReplies, ReadReply, ReadRequest, Result};
use lsm::{IoClass, ReadView, Scan, ScanStep};
use sstable::{PIECE_BYTES, StoredValue, Table, ValueRef};
use types::{Generation, RowOrder, RowRange, key, row_successor};

use super::encode::{CHUNK_VALUE_BYTES_MAX, CellHead, ReplyEncoder};
use super::parking::{Parked, Place};
use crate::budget::Held;
use crate::error::from_store;
use crate::range::{InForce, Range};
use crate::server::Shared;

/// What a read holds of the budget besides its reply, bytes.
pub(crate) const READ_BYTES: u64 = 16 << 10;
/// Blocks read by scans of at most this many rows stay in the cache.
const CACHED_ROWS_MAX: u64 = 100;
/// A view that is not the newest, and so may be the only holder of a memtable that was flushed, is
/// kept for so long.
const OUTDATED_VIEW_AGE_MAX: Duration = Duration::from_millis(100);
/// Steps between two points at which other tasks may run.
const STEPS_PER_TURN: u32 = 1024;

/// A running read of one range.
pub(crate) struct RangeRead {
    shared: Arc<Shared>,
    range: Arc<Range>,
    in_force: InForce,
    generation: Generation,
    held: Held,
    /// `None` between two pulls, mostly.
    view: Option<ReadView>,
    /// Made at the end of the first pull that is not the last.
    place: Option<Arc<Place>>,
    viewed_at: Duration,
    /// The view was renewed and no row was begun since: the next one is, however long it took.
    is_view_unused: bool,
    /// It is to be renewed at the next row.
    is_view_old: bool,
    order: RowOrder,
    /// Still to be scanned, the next one last.
    rows: Vec<RowRange>,
    rows_left: Option<u64>,
    scan: Option<Scan>,
    /// What the present scan is over.
    scanned: RowRange,
    /// What is left of it, while it is parked.
    unread: Option<RowRange>,
    /// The scan stands on a cell that is not encoded yet.
    stands_on_cell: bool,
    /// The row being encoded, escaped; empty between rows.
    row: Vec<u8>,
    /// Bytes of its cells so far.
    row_bytes: u64,
    value: Option<Value>,
    encoder: ReplyEncoder,
    scratch: Vec<u8>,
    steps: u32,
    is_finished: bool,
}

/// What a step of a read came to.
enum Turn {
    Went,
    /// The scan's block is to be loaded.
    NeedsBlock,
    /// The next piece of a value is to be encoded.
    NeedsPiece,
}

/// A value of which some is still to be encoded.
enum Value {
    /// The scan holds it; encoded up to here.
    Inline(usize),
    /// It lies in the table, outside the blocks.
    Stored { stored: StoredValue, table: Arc<Table>, piece: usize, rest: Bytes },
}

impl RangeRead {
    /// Starts a read of a range that was checked to be served as asked.
    pub(crate) fn start(
        shared: Arc<Shared>,
        range: Arc<Range>,
        request: &ReadRequest,
        held: Held,
    ) -> Result<RangeRead> {
        let in_force = range.in_force();
        // The schema may have changed since the check.
        range.check_generation(request.target.generation)?;
        let view = range.store().view().map_err(|error| from_store(&error))?;
        let limit = request.spec.rows_limit;
        let rows = request.spec.rows.within(range.store().bounds());
        let mut rows = rows.ranges().to_vec();
        if request.spec.order == RowOrder::Ascending {
            rows.reverse();
        }
        Ok(RangeRead {
            viewed_at: shared.pipeline.env.monotonic(),
            in_force,
            generation: request.target.generation,
            held,
            view: Some(view),
            place: None,
            is_view_unused: true,
            is_view_old: false,
            order: request.spec.order,
            rows,
            rows_left: (limit > 0).then_some(limit),
            scan: None,
            scanned: RowRange::all(),
            unread: None,
            stands_on_cell: false,
            row: Vec::new(),
            row_bytes: 0,
            value: None,
            encoder: ReplyEncoder::new(request.row_keys),
            scratch: Vec::new(),
            steps: 0,
            is_finished: false,
            shared,
            range,
        })
    }

    async fn next_reply(&mut self) -> Result<Option<ReadReply>> {
        if self.row.is_empty() && !self.is_finished {
            self.range.check_generation(self.generation)?;
        }
        self.leave_place()?;
        self.look_at_view();
        while !self.is_finished && !self.encoder.is_full() {
            match self.advance()? {
                Turn::Went => {}
                Turn::NeedsBlock => {
                    let scan = self.scan.as_mut().expect("a scan needs the block");
                    scan.load().await.map_err(|error| from_store(&error))?;
                    self.look_at_view();
                }
                Turn::NeedsPiece => self.encode_piece().await?,
            }
            self.steps += 1;
            if self.steps.is_multiple_of(STEPS_PER_TURN) {
                self.shared.pipeline.env.yield_now().await;
                self.look_at_view();
            }
        }
        let reply = self.encoder.take();
        self.shared.check_serving()?;
        self.shared.wait_for_division(&self.range).await?;
        if self.range.is_closed() {
            return Err(self.range.closed());
        }
        let bytes = reply.as_ref().map_or(0, |reply| reply.encoded.len()) + self.encoder.bytes();
        self.held.resize(READ_BYTES + bytes as u64);
        self.park();
        Ok(reply)
    }

    /// Parks view and scan, if the read stands between two rows.
    fn park(&mut self) {
        if !self.row.is_empty() || self.is_finished {
            return;
        }
        self.unread = self.unread();
        if let (Some(view), Some(scan)) = (self.view.take(), self.scan.take()) {
            let place = self.place.get_or_insert_with(|| self.shared.parking.place());
            place.park(Parked { view, scan });
        }
    }

    /// Takes up what was parked, or a new view when that was taken away.
    fn leave_place(&mut self) -> Result<()> {
        if self.view.is_some() || self.is_finished {
            return Ok(());
        }
        let unread = self.unread.take();
        if let Some(Parked { view, scan }) = self.place.as_ref().and_then(|place| place.leave()) {
            (self.view, self.scan) = (Some(view), Some(scan));
            return Ok(());
        }
        self.rows.extend(unread);
        self.stands_on_cell = false;
        self.view = Some(self.range.store().view().map_err(|error| from_store(&error))?);
        self.viewed_at = self.shared.pipeline.env.monotonic();
        self.is_view_unused = true;
        Ok(())
    }

    /// What is left of the present run of rows, from the row on that the scan stands before.
    fn unread(&self) -> Option<RowRange> {
        let left = self.scanned.clone();
        let scan = self.scan.as_ref()?;
        if !self.stands_on_cell {
            return Some(left);
        }
        let row = Bytes::from(key::unescape_row(scan.cell().row_prefix));
        Some(match self.order {
            RowOrder::Ascending => RowRange { start: row, ..left },
            RowOrder::Descending => RowRange { end: Some(row_successor(&row)), ..left },
        })
    }

    /// Does a little without waiting: encodes a cell, or moves the scan by one step.
    fn advance(&mut self) -> Result<Turn> {
        if self.value.is_some() {
            return Ok(Turn::NeedsPiece);
        }
        if self.stands_on_cell {
            self.encode_cell()?;
            return Ok(Turn::Went);
        }
        let Some(scan) = &mut self.scan else {
            self.start_scan();
            return Ok(Turn::Went);
        };
        match scan.step().map_err(|error| from_store(&error))? {
            ScanStep::Cell => {
                self.stands_on_cell = true;
                if !self.row.is_empty() && scan.cell().row_prefix != self.row {
                    // The cell waits: the row's end may have filled the message.
                    self.finish_row();
                }
            }
            ScanStep::NeedBlock => return Ok(Turn::NeedsBlock),
            ScanStep::End => {
                self.scan = None;
                if !self.row.is_empty() {
                    self.finish_row();
                }
            }
        }
        Ok(Turn::Went)
    }

    fn start_scan(&mut self) {
        let Some(rows) = self.rows.pop() else {
            self.is_finished = true;
            return;
        };
        if self.is_view_old {
            self.renew_view();
        }
        let few = self.rows_left.is_some_and(|left| left <= CACHED_ROWS_MAX);
        let fills_cache = few || rows.single_row().is_some();
        let view = self.view.as_ref().expect("a read that is pulled has a view");
        let scan = view.scan(&rows, &self.in_force.rules, fills_cache);
        self.scan = Some(match self.order {
            RowOrder::Ascending => scan,
            RowOrder::Descending => scan.descending(),
        });
        self.scanned = rows;
    }

    /// Asks how old the view is and what it holds: not at every row, which would cost more than a
    /// small one.
    fn look_at_view(&mut self) {
        let age = self.shared.pipeline.env.monotonic().saturating_sub(self.viewed_at);
        let is_outdated = || self.view.as_ref().is_some_and(|view| !view.is_newest());
        let is_old = age >= self.shared.config.options.view_age_max
            || (age >= OUTDATED_VIEW_AGE_MAX && is_outdated());
        self.is_view_old = !self.is_view_unused && is_old;
    }

    fn renew_view(&mut self) {
        self.viewed_at = self.shared.pipeline.env.monotonic();
        self.is_view_unused = true;
        self.is_view_old = false;
        // A failed pin leaves the old view, which is as good as it was.
        if let Ok(view) = self.range.store().view() {
            self.view = Some(view);
        }
    }

    fn finish_row(&mut self) {
        self.encoder.end_row();
        self.row.clear();
        if let Some(left) = &mut self.rows_left {
            *left -= 1;
            if *left == 0 {
                self.is_finished = true;
                self.scan = None;
                self.stands_on_cell = false;
            }
        }
    }

    /// Encodes the cell that the scan stands on, all of it if it is small.
    fn encode_cell(&mut self) -> Result<()> {
        let scan = self.scan.as_ref().expect("a scan stands on the cell");
        let cell = scan.cell();
        if self.row.is_empty() && self.is_view_old {
            let unread = self.unread();
            self.rows.extend(unread);
            self.scan = None;
            self.stands_on_cell = false;
            self.renew_view();
            return Ok(());
        }
        if self.row.is_empty() {
            self.is_view_unused = false;
            self.row.extend_from_slice(cell.row_prefix);
            self.row_bytes = 0;
            self.scratch.clear();
            cell.row_into(&mut self.scratch);
            self.encoder.begin_row(&self.scratch);
        }
        self.scratch.clear();
        cell.qualifier_into(&mut self.scratch);
        self.row_bytes += self.scratch.len() as u64 + cell.value.len();
        let most = self.shared.config.options.row_bytes_max;
        if self.row_bytes > most {
            let row = Bytes::from(key::unescape_row(&self.row));
            return Err(client::Error::large_row(row, most));
        }
        let family = self.in_force.schema.family_by_id(cell.family);
        let family = family.expect("a scan shows families of the schema only");
        self.encoder.begin_cell(CellHead {
            family: cell.family,
            family_name: &family.name,
            qualifier: &self.scratch,
            timestamp: cell.timestamp,
            value_len: cell.value.len(),
        });
        self.value = match (cell.value, cell.table) {
            (ValueRef::Inline([]), _) => None,
            (ValueRef::Inline(value), _) if value.len() <= CHUNK_VALUE_BYTES_MAX => {
                self.encoder.value_piece(value);
                None
            }
            (ValueRef::Inline(_), _) => Some(Value::Inline(0)),
            (ValueRef::Stored(stored), table) => Some(Value::Stored {
                stored: stored.clone(),
                table: Arc::clone(table.expect("a stored value has a table")),
                piece: 0,
                rest: Bytes::new(),
            }),
        };
        self.stands_on_cell = self.value.is_some();
        Ok(())
    }

    /// Encodes the next piece of a large value.
    async fn encode_piece(&mut self) -> Result<()> {
        let is_whole = match self.value.as_mut().expect("a value is under way") {
            Value::Inline(encoded) => {
                let scan = self.scan.as_ref().expect("a scan stands on the cell");
                let ValueRef::Inline(value) = scan.cell().value else {
                    unreachable!("the scan has not moved");
                };
                let rest = &value[*encoded..];
                let piece = &rest[..rest.len().min(CHUNK_VALUE_BYTES_MAX)];
                self.encoder.value_piece(piece);
                *encoded += piece.len();
                *encoded == value.len()
            }
            Value::Stored { stored, table, piece, rest } => {
                if rest.is_empty() {
                    let bytes = stored.len().min(PIECE_BYTES as u64);
                    self.range.store().limiter().spend(IoClass::Read, bytes).await;
                    let read = table.read_value_piece(stored, *piece).await;
                    *rest = read.map_err(|error| from_store(&error.into()))?;
                    *piece += 1;
                }
                let part = rest.split_to(rest.len().min(CHUNK_VALUE_BYTES_MAX));
                self.encoder.value_piece(&part);
                rest.is_empty() && *piece == stored.pieces()
            }
        };
        if is_whole {
            self.value = None;
            self.stands_on_cell = false;
        }
        Ok(())
    }
}

#[async_trait]
impl ReadReplies for RangeRead {
    async fn next(&mut self) -> Result<Option<ReadReply>> {
        let reply = self.next_reply().await;
        if reply.is_err() {
            self.is_finished = true;
            self.scan = None;
            self.encoder = ReplyEncoder::default();
        }
        reply
    }
}

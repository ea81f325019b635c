//! Prints snapshots and log records for people.

use std::fmt::Write;

use bytes::Bytes;
use types::SessionId;

use crate::Change;
use crate::format::{Refusal, Snapshot, VERSION, decode_record};

/// Makes text of the value of a key, or answers what is wrong with it.
pub type ValueText<'a> = dyn Fn(&str, &Bytes) -> Result<String, String> + Sync + 'a;

/// Writes a snapshot, whose number must be that of its `name`. A writer that refuses a line ends
/// it without error.
///
/// # Errors
/// What is wrong with it.
pub fn snapshot(
    name: &str,
    stored: &Bytes,
    values: &ValueText<'_>,
    out: &mut dyn Write,
) -> Result<(), String> {
    let snapshot = Snapshot::decode(stored).map_err(|refusal| refused(&refusal))?;
    if Snapshot::parse_name(name) != Some(snapshot.number) {
        return Err(format!("its number {} is not that of its name", snapshot.number));
    }
    let log = match snapshot.log {
        Some(session) => format!("continued by the log of session {session}"),
        None => "closed: no log continues it".to_owned(),
    };
    let Snapshot { number, revision, entries, .. } = snapshot;
    let first = writeln!(out, "snapshot {number} at {revision}, {log}");
    if first.is_err() {
        return Ok(());
    }
    for (key, found) in entries {
        let value = values(&key, &found.value).map_err(|what| format!("{key}: {what}"))?;
        let (created, modified) = (found.created, found.modified);
        let bound = bound(found.session);
        if writeln!(out, "{key} {created} {modified}{bound} = {value}").is_err() {
            break;
        }
    }
    Ok(())
}

/// Writes the changes of one record of the log. A writer that refuses a line ends it without error.
///
/// # Errors
/// What is wrong with it.
pub fn record(stored: &Bytes, values: &ValueText<'_>, out: &mut dyn Write) -> Result<(), String> {
    for change in decode_record(stored).map_err(|refusal| refused(&refusal))? {
        let line = match change {
            Change::Delete { key } => format!("delete {key}"),
            Change::Put { key, value, session } => {
                let value = values(&key, &value).map_err(|what| format!("{key}: {what}"))?;
                format!("put {key}{} = {value}", bound(session))
            }
        };
        if writeln!(out, "    {line}").is_err() {
            break;
        }
    }
    Ok(())
}

fn bound(session: Option<SessionId>) -> String {
    session.map_or(String::new(), |session| format!(" bound to {session}"))
}

fn refused(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Damaged(what) => (*what).to_owned(),
        Refusal::TooNew(needed) => {
            format!("it needs version {needed}; this program has version {VERSION}")
        }
    }
}

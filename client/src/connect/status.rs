//! What a gRPC status means here.
//!
//! A status that the server sent says what became of the request: UNAVAILABLE has changed nothing.
//! A status that the transport made up (it then has a source) says that the connection broke: only
//! a connection that was never made is known to have changed nothing; all else becomes `Aborted`.

use std::error::Error as _;
use std::time::Duration;

use prost::Message;
use proto::google::rpc;
use tonic::{Code, ConnectError, Status};
use types::ErrorKind;

use crate::Error;

/// The longest wait that a server can ask for.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(60);
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

pub(crate) fn error(status: &Status) -> Error {
    let kind = match transport(status) {
        Some(kind) => kind,
        None => kind(status.code()),
    };
    let message =
        if status.message().is_empty() { kind.to_string() } else { status.message().to_owned() };
    with_delay(Error::new(kind, message), status.details())
}

/// The status of one entry of a batch; `None` when it is OK.
pub(crate) fn entry_error(status: &rpc::Status) -> Option<Error> {
    let code = Code::from_i32(status.code);
    if code == Code::Ok {
        return None;
    }
    let error = Error::new(kind(code), status.message.clone());
    Some(match retry_delay(&status.details) {
        Some(delay) => error.retry_after(delay),
        None => error,
    })
}

fn transport(status: &Status) -> Option<ErrorKind> {
    let mut source = status.source();
    source?;
    while let Some(error) = source {
        if error.downcast_ref::<ConnectError>().is_some() {
            return Some(ErrorKind::Unavailable);
        }
        source = error.source();
    }
    Some(ErrorKind::Aborted)
}

fn kind(code: Code) -> ErrorKind {
    match code {
        Code::InvalidArgument | Code::OutOfRange => ErrorKind::InvalidArgument,
        Code::NotFound => ErrorKind::NotFound,
        Code::AlreadyExists => ErrorKind::AlreadyExists,
        Code::FailedPrecondition => ErrorKind::FailedPrecondition,
        Code::Unimplemented => ErrorKind::Unimplemented,
        Code::ResourceExhausted => ErrorKind::ResourceExhausted,
        Code::Unavailable => ErrorKind::Unavailable,
        Code::DeadlineExceeded => ErrorKind::DeadlineExceeded,
        Code::Aborted | Code::Cancelled => ErrorKind::Aborted,
        Code::DataLoss => ErrorKind::Corrupt,
        Code::PermissionDenied | Code::Unauthenticated => ErrorKind::PermissionDenied,
        Code::Ok | Code::Internal | Code::Unknown => ErrorKind::Io,
    }
}

fn with_delay(error: Error, details: &[u8]) -> Error {
    let delay = rpc::Status::decode(details).ok().and_then(|status| retry_delay(&status.details));
    match delay {
        Some(delay) => error.retry_after(delay),
        None => error,
    }
}

fn retry_delay(details: &[prost_types::Any]) -> Option<Duration> {
    let info = details.iter().find(|any| any.type_url == RETRY_INFO)?;
    let info = rpc::RetryInfo::decode(&info.value[..]).ok()?;
    let delay = Duration::try_from(info.retry_delay?).ok()?;
    Some(delay.min(RETRY_DELAY_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry_after(delay: prost_types::Duration) -> Vec<prost_types::Any> {
        let info = rpc::RetryInfo { retry_delay: Some(delay) };
        vec![prost_types::Any { type_url: RETRY_INFO.to_owned(), value: info.encode_to_vec() }]
    }

    fn seconds(seconds: i64) -> prost_types::Duration {
        prost_types::Duration { seconds, nanos: 0 }
    }

    #[test]
    fn a_servers_wish_to_wait_is_read_and_capped() {
        let details =
            rpc::Status { code: 8, message: "full".to_owned(), details: retry_after(seconds(2)) };
        let status =
            Status::with_details(Code::ResourceExhausted, "full", details.encode_to_vec().into());
        let read = error(&status);
        assert_eq!(read.kind(), ErrorKind::ResourceExhausted);
        assert_eq!(read.message(), "full");
        assert_eq!(read.retry_delay(), Some(Duration::from_secs(2)));
        assert_eq!(retry_delay(&retry_after(seconds(i64::MAX))), Some(RETRY_DELAY_MAX));
        assert_eq!(retry_delay(&retry_after(seconds(-1))), None);
    }

    #[test]
    fn damaged_details_are_no_details() {
        let status = Status::with_details(Code::NotFound, "gone", vec![0xff; 9].into());
        assert_eq!(error(&status), Error::not_found("gone"));
    }

    #[test]
    fn an_entry_that_is_ok_is_no_error() {
        assert_eq!(entry_error(&rpc::Status::default()), None);
        let failed =
            rpc::Status { code: 5, message: "no such family".to_owned(), details: Vec::new() };
        assert_eq!(entry_error(&failed), Some(Error::not_found("no such family")));
    }
}

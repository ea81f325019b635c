//! Errors as gRPC carries them.
//!
//! The kind of an error is its code. Where waiting helps, the details say how long (`RetryInfo`,
//! which official clients obey).

use bytes::Bytes;
use prost::Message;
use proto::google::rpc;
use tonic::{Code, Status};
use types::ErrorKind;

use client::Error;

/// Bytes of a text; it travels in a header, and part of it may be a client's own words.
const TEXT_BYTES_MAX: usize = 1024;

/// The status of a call that failed.
pub(crate) fn status(error: &Error) -> Status {
    let wire = wire_status(error);
    let details = if wire.details.is_empty() { Bytes::new() } else { wire.encode_to_vec().into() };
    Status::with_details(code(error.kind()), wire.message, details)
}

/// The same as a message, for one entry of a batch.
pub(crate) fn wire_status(error: &Error) -> rpc::Status {
    let details = error.retry_delay().map(|delay| {
        let retry = rpc::RetryInfo { retry_delay: prost_types::Duration::try_from(delay).ok() };
        prost_types::Any {
            type_url: "type.googleapis.com/google.rpc.RetryInfo".to_owned(),
            value: retry.encode_to_vec(),
        }
    });
    rpc::Status {
        code: code(error.kind()) as i32,
        message: clipped(error.message()).to_owned(),
        details: details.into_iter().collect(),
    }
}

/// INTERNAL and UNKNOWN are never used: some clients repeat them for ever.
fn code(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::InvalidArgument => Code::InvalidArgument,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::AlreadyExists => Code::AlreadyExists,
        ErrorKind::FailedPrecondition => Code::FailedPrecondition,
        ErrorKind::Unimplemented => Code::Unimplemented,
        ErrorKind::ResourceExhausted => Code::ResourceExhausted,
        ErrorKind::Unavailable | ErrorKind::WrongRange => Code::Unavailable,
        // The server is about to end; whoever takes over may answer.
        ErrorKind::Poisoned | ErrorKind::Io => Code::Unavailable,
        ErrorKind::DeadlineExceeded => Code::DeadlineExceeded,
        ErrorKind::Aborted => Code::Aborted,
        ErrorKind::Corrupt => Code::DataLoss,
        ErrorKind::PermissionDenied => Code::PermissionDenied,
    }
}

fn clipped(text: &str) -> &str {
    if text.len() <= TEXT_BYTES_MAX {
        return text;
    }
    let end = (0..=TEXT_BYTES_MAX).rfind(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_delay_travels_in_the_details() {
        let error = Error::new(ErrorKind::ResourceExhausted, "full")
            .retry_after(Duration::from_millis(1500));
        let status = status(&error);
        assert_eq!(status.code(), Code::ResourceExhausted);
        let details = rpc::Status::decode(status.details()).unwrap();
        assert_eq!((details.code, details.message.as_str()), (8, "full"));
        let retry = rpc::RetryInfo::decode(&details.details[0].value[..]).unwrap();
        let delay = retry.retry_delay.unwrap();
        assert_eq!((delay.seconds, delay.nanos), (1, 500_000_000));
    }

    #[test]
    fn a_long_text_is_clipped_between_characters() {
        let text = "é".repeat(10_000);
        let status = status(&Error::invalid(text));
        assert_eq!(status.message().len(), TEXT_BYTES_MAX);
        assert!(status.details().is_empty());
    }
}

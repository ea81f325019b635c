//! Errors as gRPC carries them.
//!
//! The kind of an error is its code. Where waiting helps, the details say how long (`RetryInfo`,
//! which official clients obey); of a row that is too large to read, they name it (`ErrorInfo`).

use bytes::Bytes;
use prost::Message;
use proto::google::rpc;
use tonic::{Code, Status};
use types::ErrorKind;

use client::Error;

/// Bytes of a text; it travels in a header, and part of it may be a client's own words.
const TEXT_BYTES_MAX: usize = 1024;
/// How official clients recognise a row that is too large, and learn which.
const LARGE_ROW: &str = "LargeRowReadError";
const LARGE_ROW_KEY: &str = "rowKeyBase64Encoded";
const DOMAIN: &str = "bigtable.googleapis.com";

/// The status of a call that failed.
pub(crate) fn status(error: &Error) -> Status {
    let wire = wire_status(error);
    let details = if wire.details.is_empty() { Bytes::new() } else { wire.encode_to_vec().into() };
    Status::with_details(code(error.kind()), wire.message, details)
}

/// The same as a message, for one entry of a batch.
pub(crate) fn wire_status(error: &Error) -> rpc::Status {
    let retry = error.retry_delay().map(|delay| {
        let retry = rpc::RetryInfo { retry_delay: prost_types::Duration::try_from(delay).ok() };
        any("RetryInfo", &retry)
    });
    let info = error.too_large().map(|row| {
        let metadata = [(LARGE_ROW_KEY.to_owned(), base64(row))];
        let (reason, domain) = (LARGE_ROW.to_owned(), DOMAIN.to_owned());
        any("ErrorInfo", &rpc::ErrorInfo { reason, domain, metadata: metadata.into() })
    });
    rpc::Status {
        code: code(error.kind()) as i32,
        message: clipped(error.message()).to_owned(),
        details: retry.into_iter().chain(info).collect(),
    }
}

fn any(name: &str, message: &impl Message) -> prost_types::Any {
    let type_url = format!("type.googleapis.com/google.rpc.{name}");
    prost_types::Any { type_url, value: message.encode_to_vec() }
}

/// The standard form, padded.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
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
    fn a_row_that_is_too_large_is_named_in_the_details() {
        for (row, encoded) in [("k", "aw=="), ("ke", "a2U="), ("key", "a2V5"), ("\u{ff}?", "w78/")]
        {
            let status = status(&Error::large_row(Bytes::from_static(row.as_bytes()), 256));
            assert_eq!(status.code(), Code::FailedPrecondition);
            let details = rpc::Status::decode(status.details()).unwrap().details;
            assert_eq!(details[0].type_url, "type.googleapis.com/google.rpc.ErrorInfo");
            let info = rpc::ErrorInfo::decode(&details[0].value[..]).unwrap();
            assert_eq!(info.reason, "LargeRowReadError");
            assert_eq!(info.metadata["rowKeyBase64Encoded"], encoded);
        }
    }

    #[test]
    fn a_long_text_is_clipped_between_characters() {
        let text = "é".repeat(10_000);
        let status = status(&Error::invalid(text));
        assert_eq!(status.message().len(), TEXT_BYTES_MAX);
        assert!(status.details().is_empty());
    }
}

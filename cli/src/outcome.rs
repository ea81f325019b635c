//! How a command ends, and the standard output it writes to.

use std::fmt;
use std::io::{self, BufWriter, ErrorKind, Stdout, Write};

/// Why a command stopped.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It failed; people read why.
    Said(String),
    /// Whoever read the output has enough of it: no failure to tell.
    OutputClosed,
}

impl From<client::Error> for Failure {
    fn from(error: client::Error) -> Failure {
        Failure::Said(error.to_string())
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure::Said(text)
    }
}

/// The standard output.
pub(crate) struct Out {
    lines: BufWriter<Stdout>,
    closed: bool,
}

impl Out {
    pub(crate) fn new() -> Out {
        Out { lines: BufWriter::new(io::stdout()), closed: false }
    }

    /// Writes text.
    ///
    /// # Errors
    /// [`Failure::OutputClosed`], or what the operating system says.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// As [`Out::text`].
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = self.lines.write_all(bytes);
        self.check(written)
    }

    /// Writes one line of JSON.
    ///
    /// # Errors
    /// As [`Out::text`].
    pub(crate) fn json(&mut self, value: &serde_json::Value) -> Result<(), Failure> {
        self.text(&format!("{value}\n"))
    }

    /// Writes out what is still held back.
    ///
    /// # Errors
    /// As [`Out::text`].
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        let flushed = self.lines.flush();
        self.check(flushed)
    }

    /// As [`Out::flush`], at the end.
    ///
    /// # Errors
    /// As [`Out::text`].
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.flush()
    }

    /// Did the reader go away?
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    fn check(&mut self, outcome: io::Result<()>) -> Result<(), Failure> {
        match outcome {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.closed = true;
                Err(Failure::OutputClosed)
            }
            Err(error) => Err(Failure::Said(format!("cannot write the output: {error}"))),
        }
    }
}

impl fmt::Write for Out {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text(text).map_err(|_| fmt::Error)
    }
}

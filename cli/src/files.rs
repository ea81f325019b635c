//! Reads the files that people name on the command line.

use std::path::Path;

use bytes::Bytes;

/// The content of a file; `-` is the standard input.
///
/// # Errors
/// A text that names the file and says why it cannot be read, or that it has more than `bytes_max`.
#[expect(
    clippy::disallowed_methods,
    reason = "a file that the user names is none of the server's files"
)]
pub(crate) fn read(path: &Path, bytes_max: u64) -> Result<Bytes, String> {
    use std::io::Read;
    let shown = path.display();
    let failed = |error: std::io::Error| format!("cannot read {shown}: {error}");
    let mut content = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin().take(bytes_max + 1).read_to_end(&mut content).map_err(failed)?;
    } else {
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(bytes_max + 1).read_to_end(&mut content).map_err(failed)?;
    }
    if content.len() as u64 > bytes_max {
        return Err(format!("{shown} is larger than {bytes_max} bytes"));
    }
    Ok(content.into())
}

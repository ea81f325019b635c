//! Accepts connections.
//!
//! Not left to tonic, whose loop spins when the process has no file descriptor to spare: here it
//! waits. No more connections are accepted than may be open; further ones wait in the kernel.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use env::Env;
use futures::stream::{self, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// How long to wait when a connection cannot be accepted: long enough not to spin, short enough
/// not to be noticed.
const PAUSE: Duration = Duration::from_millis(75);

/// A connection that counts until it is dropped.
pub(crate) struct Connection {
    stream: TcpStream,
    _open: OwnedSemaphorePermit,
}

/// The connections to `listener`, at most `open_max` at one time.
pub(crate) fn connections(
    listener: TcpListener,
    open_max: usize,
    env: Env,
) -> impl Stream<Item = io::Result<Connection>> {
    let places = Arc::new(Semaphore::new(open_max.min(Semaphore::MAX_PERMITS)));
    stream::unfold((listener, places, env), async |state| {
        let (listener, places, env) = &state;
        let open = places.clone().acquire_owned().await.ok()?;
        loop {
            match listener.accept().await {
                // A connection that refuses the setting is gone already.
                Ok((stream, _)) if stream.set_nodelay(true).is_ok() => {
                    let connection = Connection { stream, _open: open };
                    return Some((Ok(connection), state));
                }
                Ok(_) => {}
                Err(error) if of_one_connection(&error) => {}
                Err(_) => env.sleep(PAUSE).await,
            }
        }
    })
}

/// Does an error say only that one connection went away while it was accepted?
fn of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

//! A bound on the bytes of requests that are in the server at one time.
//!
//! 1. A request's body is counted as it arrives: each piece takes its bytes out of the budget
//!    before it is read on, so that a full budget stops the client through flow control.
//! 2. Whoever cannot get its bytes in time is refused with RESOURCE_EXHAUSTED and told when to
//!    try again.
//! 3. The bytes go back when the request is answered, or has gone away.
//! 4. A message says its length first. One past the limit is refused before any of it is read.
//!    For a large one, [`LargeRequests`] is asked for all of its memory at once, if there is one:
//!    pieces of two large requests could stand in each other's way.
//!
//! Invariants
//! - Bodies in the server hold no more than the budget, and one piece each, besides what
//!   [`LargeRequests`] has admitted.
//! - A request bigger than the budget takes all of it and no more, so that it can pass alone.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use client::Error;
use env::Env;
use http_body::{Body as HttpBody, Frame, SizeHint};
use proto::limits::MESSAGE_BYTES_MAX;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use types::ErrorKind;

use crate::status::status;

/// When a refused request may be sent again.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Messages of fewer bytes are counted piece by piece.
const LARGE_BYTES_MIN: usize = 1 << 20;
/// What stands before a message: a flag, and its length in four bytes.
const PREFIX_BYTES: usize = 5;

/// Gives memory to large requests, out of what the whole process has.
#[async_trait]
pub trait LargeRequests: Send + Sync + 'static {
    /// Waits until a request of `bytes` bytes fits. They are given back when the answer is dropped.
    ///
    /// # Errors
    /// `ResourceExhausted` when it does not fit in time, or never would.
    async fn admit(&self, bytes: u64) -> client::Result<Box<dyn Send + Sync>>;
}

/// Bytes that the requests in the server share.
pub struct RequestBudget {
    bytes: Arc<Semaphore>,
    total: usize,
    wait: Duration,
    env: Env,
    large: Option<Arc<dyn LargeRequests>>,
}

impl std::fmt::Debug for RequestBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RequestBudget({} of {})", self.used(), self.total)
    }
}

impl RequestBudget {
    /// `total` bytes; a request waits for its share at most `wait`.
    pub fn new(total: usize, wait: Duration, env: Env) -> RequestBudget {
        let total = total.clamp(1, Semaphore::MAX_PERMITS);
        let bytes = Arc::new(Semaphore::new(total));
        RequestBudget { bytes, total, wait, env, large: None }
    }

    /// The same budget for all but large requests, which get their memory from `large`.
    #[must_use]
    pub fn with_large(self, large: Option<Arc<dyn LargeRequests>>) -> RequestBudget {
        RequestBudget { large, ..self }
    }

    /// Bytes taken at present.
    pub fn used(&self) -> usize {
        self.total - self.bytes.available_permits()
    }
}

/// What one request has taken.
#[derive(Default)]
struct Held(Mutex<Grant>);

/// Memory for a request, or for a piece of it.
#[derive(Default)]
enum Grant {
    #[default]
    Nothing,
    Pieces(OwnedSemaphorePermit),
    /// All that the request will take.
    Whole {
        _held: Box<dyn Send + Sync>,
    },
}

impl Held {
    /// Bytes of its pieces; `None`: all are granted.
    fn pieces(&self) -> Option<usize> {
        match &*self.grant() {
            Grant::Nothing => Some(0),
            Grant::Pieces(permit) => Some(permit.num_permits()),
            Grant::Whole { .. } => None,
        }
    }

    fn add(&self, more: Grant) {
        match (&mut *self.grant(), more) {
            (Grant::Pieces(held), Grant::Pieces(more)) => held.merge(more),
            (held, more) => *held = more,
        }
    }

    fn grant(&self) -> MutexGuard<'_, Grant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A service whose requests are counted.
#[derive(Clone, Debug)]
pub struct Budgeted<S> {
    service: S,
    budget: Arc<RequestBudget>,
}

impl<S> Budgeted<S> {
    /// Counts the requests to `service` in `budget`.
    pub fn new(service: S, budget: Arc<RequestBudget>) -> Budgeted<S> {
        Budgeted { service, budget }
    }
}

impl<S: NamedService> NamedService for Budgeted<S> {
    const NAME: &'static str = S::NAME;
}

type Answer<S> = <S as Service<http::Request<Body>>>::Response;

impl<S> Service<http::Request<Body>> for Budgeted<S>
where
    S: Service<http::Request<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Answer<S>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer<S>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let held = Arc::new(Held::default());
        let request = request.map(|body| {
            Body::new(CountedBody {
                body,
                budget: self.budget.clone(),
                held: held.clone(),
                prefix: Vec::new(),
                waiting: None,
            })
        });
        let answer = self.service.call(request);
        Box::pin(async move {
            let answer = answer.await;
            drop(held);
            answer
        })
    }
}

type Waiting = Pin<Box<dyn Future<Output = Result<Grant, Status>> + Send>>;

/// A body whose pieces are counted.
struct CountedBody {
    body: Body,
    budget: Arc<RequestBudget>,
    held: Arc<Held>,
    /// The first bytes, as far as they have come.
    prefix: Vec<u8>,
    waiting: Option<(Frame<Bytes>, Waiting)>,
}

impl CountedBody {
    /// Looks at a piece: what must be waited for before it is read on.
    fn meet(&mut self, piece: &Bytes) -> Result<Option<Waiting>, Status> {
        if self.prefix.len() < PREFIX_BYTES {
            let missing = PREFIX_BYTES - self.prefix.len();
            self.prefix.extend_from_slice(&piece[..missing.min(piece.len())]);
            if let [_, length @ ..] = &self.prefix[..]
                && let Ok(length) = length.try_into()
            {
                let length = u32::from_be_bytes(length) as usize;
                if length > MESSAGE_BYTES_MAX {
                    return Err(too_large(length));
                }
                if let Some(large) = self.budget.large.clone()
                    && length >= LARGE_BYTES_MIN
                {
                    return Ok(Some(take_whole(large, length)));
                }
            }
        }
        let pieces = self.held.pieces().filter(|_| !piece.is_empty());
        Ok(pieces.map(|held| self.take(held, piece.len())))
    }

    /// Takes the bytes of a piece out of the budget, of which the request holds `held`.
    fn take(&self, held: usize, bytes: usize) -> Waiting {
        let (semaphore, wait) = (self.budget.bytes.clone(), self.budget.wait);
        let env = self.budget.env.clone();
        let share = bytes.min(self.budget.total - held);
        let share = u32::try_from(share).unwrap_or(u32::MAX);
        Box::pin(async move {
            match env.timeout(wait, semaphore.acquire_many_owned(share)).await {
                Ok(Ok(permit)) => Ok(Grant::Pieces(permit)),
                Ok(Err(_)) | Err(_) => Err(too_much()),
            }
        })
    }
}

fn take_whole(large: Arc<dyn LargeRequests>, bytes: usize) -> Waiting {
    Box::pin(async move {
        let held = large.admit(bytes as u64).await.map_err(|error| status(&error))?;
        Ok(Grant::Whole { _held: held })
    })
}

fn too_large(bytes: usize) -> Status {
    let text = format!("a message of {bytes} bytes is larger than {MESSAGE_BYTES_MAX}");
    status(&Error::new(ErrorKind::ResourceExhausted, text))
}

fn too_much() -> Status {
    let text = "the server has as many bytes of requests as it can hold";
    status(&Error::new(ErrorKind::ResourceExhausted, text).retry_after(RETRY_AFTER))
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            if let Some((_, waiting)) = &mut self.waiting {
                let granted = ready!(waiting.as_mut().poll(cx));
                let frame = self.waiting.take().map(|(frame, _)| frame);
                return Poll::Ready(match granted {
                    Ok(grant) => {
                        self.held.add(grant);
                        frame.map(Ok)
                    }
                    Err(refused) => Some(Err(refused)),
                });
            }
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            let waiting = match frame.data_ref() {
                Some(piece) => self.meet(piece)?,
                None => None,
            };
            match waiting {
                None => return Poll::Ready(Some(Ok(frame))),
                Some(waiting) => self.waiting = Some((frame, waiting)),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.waiting.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

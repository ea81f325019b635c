//! A bound on the bytes of requests that are in the server at one time.
//!
//! 1. A request's body is counted as it arrives: each piece takes its bytes out of the budget
//!    before it is read on, so that a full budget stops the client through flow control.
//! 2. Whoever cannot get its bytes in time is refused with RESOURCE_EXHAUSTED and told when to
//!    try again.
//! 3. The bytes go back when the request is answered, or has gone away.
//!
//! Invariants
//! - Bodies in the server hold no more than the budget, and one piece each.
//! - A request bigger than the budget takes all of it and no more, so that it can pass alone.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use client::Error;
use env::Env;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use types::ErrorKind;

use crate::status::status;

/// When a refused request may be sent again.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Bytes that the requests in the server share.
pub struct RequestBudget {
    bytes: Arc<Semaphore>,
    total: usize,
    wait: Duration,
    env: Env,
}

impl std::fmt::Debug for RequestBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RequestBudget({} of {})", self.used(), self.total)
    }
}

impl RequestBudget {
    /// `total` bytes; a request waits for its share at most `wait`.
    pub fn new(total: usize, wait: Duration, env: Env) -> Arc<RequestBudget> {
        let total = total.clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(RequestBudget { bytes: Arc::new(Semaphore::new(total)), total, wait, env })
    }

    /// Bytes taken at present.
    pub fn used(&self) -> usize {
        self.total - self.bytes.available_permits()
    }
}

/// What one request has taken.
#[derive(Default)]
struct Held(Mutex<Option<OwnedSemaphorePermit>>);

impl Held {
    fn bytes(&self) -> usize {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    fn add(&self, more: OwnedSemaphorePermit) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match held.as_mut() {
            Some(held) => held.merge(more),
            None => *held = Some(more),
        }
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

type Waiting = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, Status>> + Send>>;

/// A body whose pieces are counted.
struct CountedBody {
    body: Body,
    budget: Arc<RequestBudget>,
    held: Arc<Held>,
    waiting: Option<(Frame<Bytes>, Waiting)>,
}

impl CountedBody {
    /// Takes the bytes of a piece out of the budget.
    fn take(&self, bytes: usize) -> Waiting {
        let (semaphore, wait) = (self.budget.bytes.clone(), self.budget.wait);
        let env = self.budget.env.clone();
        let share = bytes.min(self.budget.total - self.held.bytes());
        let share = u32::try_from(share).unwrap_or(u32::MAX);
        Box::pin(async move {
            match env.timeout(wait, semaphore.acquire_many_owned(share)).await {
                Ok(Ok(permit)) => Ok(permit),
                Ok(Err(_)) | Err(_) => Err(too_much()),
            }
        })
    }
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
                let permit = ready!(waiting.as_mut().poll(cx));
                let frame = self.waiting.take().map(|(frame, _)| frame);
                return Poll::Ready(match permit {
                    Ok(permit) => {
                        self.held.add(permit);
                        frame.map(Ok)
                    }
                    Err(refused) => Some(Err(refused)),
                });
            }
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            match frame.data_ref().map_or(0, Bytes::len) {
                0 => return Poll::Ready(Some(Ok(frame))),
                bytes => self.waiting = Some((frame, self.take(bytes))),
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

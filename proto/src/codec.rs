//! Answers that are encoded already.
//!
//! A reply to a read is built once, as bytes, by whoever holds the blocks, and then travels
//! untouched. [`EncodedCodec`] is the last step of that way: where an ordinary codec would encode
//! a message, it copies the bytes into the frame.
//!
//! Requests are looked at before they are decoded ([`Admission`]); one with too much in it, or
//! that is no message, is the client's error: INVALID_ARGUMENT.
//!
//! Invariant: the bytes are one message of the type that the method declares. The codec does not
//! check it; a client could not decode anything else.

use std::marker::PhantomData;

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic_prost::{ProstCodec, ProstEncoder};

use crate::admission::Admission;

/// One message in its encoded form, without the frame that gRPC puts around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded(pub Bytes);

impl Encoded {
    /// Encodes a message, for answers that are not built as bytes.
    pub fn of(message: &impl Message) -> Encoded {
        Encoded(message.encode_to_vec().into())
    }

    /// The length of the message, in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the message has no bytes, as one has whose fields all have their default.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Bytes> for Encoded {
    fn from(bytes: Bytes) -> Encoded {
        Encoded(bytes)
    }
}

/// Decodes requests of type `Request` and answers with [`Encoded`] messages.
#[derive(Clone, Debug)]
pub struct EncodedCodec<Request>(PhantomData<Request>);

impl<Request> Default for EncodedCodec<Request> {
    fn default() -> Self {
        EncodedCodec(PhantomData)
    }
}

impl<Request: Message + Admission + Default + 'static> Codec for EncodedCodec<Request> {
    type Encode = Encoded;
    type Decode = Request;
    type Encoder = EncodedEncoder;
    type Decoder = AdmittingDecoder<Request>;

    fn encoder(&mut self) -> EncodedEncoder {
        EncodedEncoder
    }

    fn decoder(&mut self) -> AdmittingDecoder<Request> {
        AdmittingDecoder(PhantomData)
    }
}

/// Decodes requests of type `Request` and encodes answers of type `Answer`.
#[derive(Clone, Debug)]
pub struct AdmittingCodec<Answer, Request>(PhantomData<(Answer, Request)>);

impl<Answer, Request> Default for AdmittingCodec<Answer, Request> {
    fn default() -> Self {
        AdmittingCodec(PhantomData)
    }
}

impl<Answer, Request> Codec for AdmittingCodec<Answer, Request>
where
    Answer: Message + 'static,
    Request: Message + Admission + Default + 'static,
{
    type Encode = Answer;
    type Decode = Request;
    type Encoder = ProstEncoder<Answer>;
    type Decoder = AdmittingDecoder<Request>;

    fn encoder(&mut self) -> ProstEncoder<Answer> {
        ProstCodec::<Answer, Request>::raw_encoder(BufferSettings::default())
    }

    fn decoder(&mut self) -> AdmittingDecoder<Request> {
        AdmittingDecoder(PhantomData)
    }
}

/// Looks at requests of type `Request`, then decodes them.
#[derive(Clone, Debug)]
pub struct AdmittingDecoder<Request>(PhantomData<Request>);

impl<Request: Message + Admission + Default> Decoder for AdmittingDecoder<Request> {
    type Item = Request;
    type Error = Status;

    fn decode(&mut self, frame: &mut DecodeBuf<'_>) -> Result<Option<Request>, Status> {
        // One slice of the frame; fields of type bytes are slices of it in turn.
        let encoded = frame.copy_to_bytes(frame.remaining());
        Request::admit(&encoded).map_err(Status::invalid_argument)?;
        let request = Request::decode(encoded);
        request.map(Some).map_err(|error| Status::invalid_argument(error.to_string()))
    }
}

/// Copies [`Encoded`] messages into frames.
#[derive(Clone, Copy, Debug)]
pub struct EncodedEncoder;

impl Encoder for EncodedEncoder {
    type Item = Encoded;
    type Error = Status;

    fn encode(&mut self, message: Encoded, frame: &mut EncodeBuf<'_>) -> Result<(), Status> {
        frame.reserve(message.len());
        frame.put(message.0);
        Ok(())
    }
}

//! Answers that are encoded already.
//!
//! A reply to a read is built once, as bytes, by whoever holds the blocks, and then travels
//! untouched. [`EncodedCodec`] is the last step of that way: where an ordinary codec would encode
//! a message, it copies the bytes into the frame. Requests are decoded as ever.
//!
//! Invariant: the bytes are one message of the type that the method declares. The codec does not
//! check it; a client could not decode anything else.

use std::marker::PhantomData;

use bytes::{BufMut, Bytes};
use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::ProstDecoder;

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

impl<Request: Message + Default + 'static> Codec for EncodedCodec<Request> {
    type Encode = Encoded;
    type Decode = Request;
    type Encoder = EncodedEncoder;
    type Decoder = ProstDecoder<Request>;

    fn encoder(&mut self) -> EncodedEncoder {
        EncodedEncoder
    }

    fn decoder(&mut self) -> ProstDecoder<Request> {
        ProstDecoder::new(BufferSettings::default())
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

// SPDX-License-Identifier: Apache-2.0
//! The reasons for which this library drops messages and refuses packets, in addition to those of the
//! protocol ([`DropReason`](tautline_proto::stats::DropReason),
//! [`RefusedPacket`](tautline_proto::stats::RefusedPacket)).

tautline_proto::reasons! {
    /// The reason for which a message of a topic was dropped outside the protocol.
    DroppedMessage {
        /// From a peer, beyond its `max_rate`.
        OverRate => "over_rate",
        /// Not of the type of its topic; a notice names what was found.
        Malformed => "malformed",
        /// From a peer, while the queue of a local subscriber was full.
        SlowSubscriber => "slow_subscriber",
        /// Of tf: it has none of the frames that are sent (`tf.frames`).
        NoNamedFrame => "no_named_frame",
        /// Of tf: some of its transforms exceeded the limit of one topic.
        NoRoom => "no_room",
    }
}

tautline_proto::reasons! {
    /// The reason for which a packet, a call or a response was refused outside the protocol.
    RefusedInput {
        /// The data plane's queue of inputs was full.
        InletFull => "inlet_full",
        /// The codec's queue was full, or a fault in this program ended a job.
        CodecBehind => "codec_behind",
        /// The peer had used up its part of the data plane's time.
        OverTime => "over_time",
        /// Calls, responses and requests of peers beyond their rate.
        CallsOverRate => "calls_over_rate",
        /// Calls and responses of peers that are not of their type.
        CallsMalformed => "calls_malformed",
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The models of networks.

mod pipe;
mod wifi;

use crate::config::{PipeConfig, WifiConfig};
use crate::ids::NetworkId;
use crate::network::{Facts, Network};
use pipe::Pipe;
pub use wifi::Category;
use wifi::Wifi;

macro_rules! models {
    ($($(#[$doc:meta])* $name:ident: $network:ident, $config:ident;)+) => {
        /// A network of one of the models, with its configuration.
        #[derive(Debug, Clone, PartialEq)]
        pub enum NetworkKind {
            $($(#[$doc])* $name($config),)+
        }

        $(impl From<$config> for NetworkKind {
            fn from(config: $config) -> Self {
                Self::$name(config)
            }
        })+

        impl NetworkKind {
            /// Returns what the configuration says about the network.
            #[must_use]
            pub fn facts(&self) -> &dyn Facts {
                match self { $(Self::$name(config) => config,)+ }
            }

            pub(crate) fn start<P: Clone>(self, id: NetworkId, seed: u64) -> Running<P> {
                match self { $(Self::$name(config) => Running::$name($network::new(id, config, seed)),)+ }
            }
        }

        /// A network in virtual time.
        #[derive(Debug)]
        pub(crate) enum Running<P> {
            $($name($network<P>),)+
        }

        impl<P: Clone> Running<P> {
            pub(crate) fn network(&self) -> &dyn Network<P> {
                match self { $(Self::$name(network) => network,)+ }
            }

            pub(crate) fn network_mut(&mut self) -> &mut dyn Network<P> {
                match self { $(Self::$name(network) => network,)+ }
            }
        }
    };
}

// Each row: the name, the model, its configuration.
models! {
    /// An 802.11 channel.
    Wifi: Wifi, WifiConfig;
    /// A line without contention.
    Pipe: Pipe, PipeConfig;
}

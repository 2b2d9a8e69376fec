// SPDX-License-Identifier: Apache-2.0
//! A participant and its discovery.

use crate::error::{DdsError, Result, check};
use crate::identity::{Guid, guid_of};
use crate::qos::{Native, Qos};
use cyclors::*;
use std::ffi::{CStr, CString, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex, PoisonError};

/// The last domain with valid ports (RTPS 2.5, 9.6.2.3).
pub const MAX_DOMAIN: u32 = 232;
/// The last participant index of a domain; higher indices use ports of the next domain.
const MAX_PARTICIPANT_INDEX: u32 = 119;

/// A reader or writer, remote or ours.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The GUID of the endpoint.
    pub guid: Guid,
    /// The name of the DDS topic (`rt/scan`).
    pub topic: String,
    /// The name of the DDS type (`sensor_msgs::msg::dds_::LaserScan_`).
    pub type_name: String,
    /// Whether the topic type has no key. In ROS 2, only types from `.idl` files can have a key (`@key`).
    pub keyless: bool,
    /// The requested or offered policies.
    pub qos: Qos,
}

/// The arrival or departure of an endpoint. A crashed participant's endpoints depart when its lease ends.
#[allow(missing_docs)]
#[derive(Clone, Debug)]
pub enum DiscoveryEvent {
    Writer(Endpoint),
    WriterGone { guid: Guid },
    Reader(Endpoint),
    ReaderGone { guid: Guid },
}

/// A listener; it must outlive its entity.
pub struct Listener {
    // Read only by Cyclone DDS.
    pub native: *mut dds_listener_t,
    _arg: Box<dyn std::any::Any>,
}
impl Listener {
    /// A listener with these callbacks.
    pub fn new(callbacks: Callbacks) -> Self {
        let arg = Box::new(callbacks);
        unsafe {
            let native = dds_create_listener(&*arg as *const Callbacks as *mut c_void);
            dds_lset_data_available(native, Some(on_data));
            dds_lset_requested_incompatible_qos(native, Some(on_requested_incompatible));
            dds_lset_offered_incompatible_qos(native, Some(on_offered_incompatible));
            dds_lset_liveliness_changed(native, Some(on_liveliness));
            Self { native, _arg: arg }
        }
    }
}

unsafe impl Send for Listener {}
unsafe impl Sync for Listener {}

impl Drop for Listener {
    fn drop(&mut self) {
        unsafe { dds_delete_listener(self.native) }
    }
}

pub type OnEntity = Box<dyn Fn(dds_entity_t) + Send + Sync>;
/// The callbacks of a listener.
pub struct Callbacks {
    /// Called when samples have arrived.
    pub data: OnEntity,
    /// Called when an endpoint is refused, with the policy and the number of refusals so far.
    pub incompatible: Box<dyn Fn(u32, i32) + Send + Sync>,
    /// Called when the liveliness of a reader's writers changes, with the numbers of writers that
    /// are alive and not alive.
    pub liveliness: Box<dyn Fn(u32, u32) + Send + Sync>,
}

impl Default for Callbacks {
    fn default() -> Self {
        Self {
            data: Box::new(|_| ()),
            incompatible: Box::new(|_, _| ()),
            liveliness: Box::new(|_, _| ()),
        }
    }
}

unsafe extern "C" fn on_data(reader: dds_entity_t, arg: *mut c_void) {
    let callbacks = &*(arg as *const Callbacks);
    if catch_unwind(AssertUnwindSafe(|| (callbacks.data)(reader))).is_err() {
        tracing::error!("a panic while samples were read");
    }
}
unsafe extern "C" fn on_requested_incompatible(
    _: dds_entity_t,
    status: dds_requested_incompatible_qos_status_t,
    arg: *mut c_void,
) {
    let callbacks = &*(arg as *const Callbacks);
    let _ = catch_unwind(AssertUnwindSafe(|| {
        (callbacks.incompatible)(status.last_policy_id, status.total_count as i32)
    }));
}
unsafe extern "C" fn on_offered_incompatible(
    _: dds_entity_t,
    status: dds_offered_incompatible_qos_status_t,
    arg: *mut c_void,
) {
    let callbacks = &*(arg as *const Callbacks);
    let _ = catch_unwind(AssertUnwindSafe(|| {
        (callbacks.incompatible)(status.last_policy_id, status.total_count as i32)
    }));
}

unsafe extern "C" fn on_liveliness(
    _: dds_entity_t,
    status: dds_liveliness_changed_status_t,
    arg: *mut c_void,
) {
    let callbacks = &*(arg as *const Callbacks);
    let _ = catch_unwind(AssertUnwindSafe(|| {
        (callbacks.liveliness)(status.alive_count, status.not_alive_count)
    }));
}

/// Our participant in a domain.
pub struct Participant {
    pub(crate) entity: dds_entity_t,
    /// The GUID of the participant.
    pub guid: Guid,
    /// Listeners of the builtin readers; deleting the participant deletes these readers.
    builtin: Mutex<Vec<Listener>>,
    _domain: Entity,
}

/// The range of discovery, which never exceeds this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiscoveryRange {
    /// Participants that use loopback only (`ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST`).
    Loopback,
    /// Participants on loopback, and those that announce themselves to their network.
    Machine,
}

impl DiscoveryRange {
    /// Returns Cyclone DDS's configuration, which discovers Fast DDS and Cyclone DDS in both ranges
    /// (tested).
    fn config(self) -> String {
        // The interface that Cyclone DDS selects by default, as in other processes.
        let choice = "<NetworkInterface autodetermine='true'/>";
        let (interfaces, multicast) = match self {
            Self::Loopback => ("", "false"),
            Self::Machine if has_network() => (choice, "spdp"),
            // Cyclone DDS would select loopback, and refuses a second entry for loopback.
            Self::Machine => ("", "spdp"),
        };
        // Multicast with time to live 0 stays on the machine. Participants without multicast on
        // loopback get unicast announcements there, periodically and on all possible ports. With
        // the largest datagrams, 39 of 40 samples of 4 MB arrive at Fast DDS; otherwise 11. At most
        // 16 MB are kept for retransmissions to a slow subscriber. It gets a heartbeat every 20 ms
        // until it has all samples: 4 MB overflow its buffer, and with Cyclone DDS's default of 100
        // ms they take four times as long, or are lost.
        format!(
            "<Domain><General><Interfaces><NetworkInterface name='lo'/>{interfaces}</Interfaces>\
             <AllowMulticast>{multicast}</AllowMulticast>\
             <MulticastTimeToLive>0</MulticastTimeToLive>\
             <MaxMessageSize>65500B</MaxMessageSize><FragmentSize>64000B</FragmentSize></General>\
             <Discovery><ParticipantIndex>auto</ParticipantIndex>\
             <MaxAutoParticipantIndex>{MAX_PARTICIPANT_INDEX}</MaxAutoParticipantIndex>\
             <Peers><Peer address='127.0.0.1' prunedelay='inf'/></Peers>\
             <SPDPInterval>1s</SPDPInterval></Discovery>\
             <Internal><GenerateKeyhash>true</GenerateKeyhash>\
             <HeartbeatInterval minsched='10ms'>20ms</HeartbeatInterval>\
             <Watermarks><WhcHigh>16MB</WhcHigh></Watermarks></Internal></Domain>"
        )
    }
}

/// Whether there is an IPv4 interface besides loopback.
fn has_network() -> bool {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    all.iter().any(|it| !it.is_loopback() && it.ip().is_ipv4())
}

impl Participant {
    /// Joins a domain (0 to [`MAX_DOMAIN`]).
    pub fn new(id: u32, range: DiscoveryRange, user_data: &[u8]) -> Result<Arc<Participant>> {
        if id > MAX_DOMAIN {
            let reason = format!("{id}; allowed: 0 to {MAX_DOMAIN}");
            return Err(DdsError { what: "domain", reason, full: false });
        }
        crate::log::install_log_sink();
        unsafe {
            let reason = "contains a NUL".to_owned();
            let nul = |_| DdsError { what: "configuration", reason, full: false };
            let config = CString::new(range.config()).map_err(nul)?;
            // Deleted if the participant cannot be created.
            let domain = Entity(check("domain", dds_create_domain(id, config.as_ptr()))?);
            let qos = Native(dds_create_qos());
            dds_qset_userdata(qos.0, user_data.as_ptr() as *const c_void, user_data.len());
            let created = dds_create_participant(id, qos.0, null());
            let entity = check("participant", created)?;
            Ok(Arc::new(Participant {
                entity,
                guid: guid_of(entity),
                builtin: Default::default(),
                _domain: domain,
            }))
        }
    }

    /// Reports all current endpoints, and later changes.
    pub fn discover(
        &self,
        on_event: impl Fn(DiscoveryEvent) + Send + Sync + 'static,
    ) -> Result<()> {
        let on_event = Arc::new(on_event);
        for (kind, topic) in [
            (Kind::Writer, DDS_BUILTIN_TOPIC_DCPSPUBLICATION),
            (Kind::Reader, DDS_BUILTIN_TOPIC_DCPSSUBSCRIPTION),
        ] {
            let on_event = on_event.clone();
            let listener = Listener::new(Callbacks {
                data: Box::new(move |reader| unsafe { take_builtin(reader, kind, &*on_event) }),
                ..Callbacks::default()
            });
            let reader = unsafe { dds_create_reader(self.entity, topic, null(), listener.native) };
            check("builtin reader", reader)?;
            self.builtin.lock().unwrap_or_else(PoisonError::into_inner).push(listener);
        }
        Ok(())
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        unsafe { dds_delete(self.entity) };
    }
}

/// A DDS entity, deleted on drop.
struct Entity(dds_entity_t);
impl Drop for Entity {
    fn drop(&mut self) {
        unsafe { dds_delete(self.0) };
    }
}

/// The endpoints that a builtin reader reports.
#[derive(Clone, Copy)]
enum Kind {
    Writer,
    Reader,
}

unsafe fn take_builtin(reader: dds_entity_t, kind: Kind, on_event: &dyn Fn(DiscoveryEvent)) {
    const N: usize = 32;
    loop {
        let mut infos: [dds_sample_info_t; N] = std::mem::zeroed();
        let mut samples = [null_mut::<c_void>(); N];
        let count = dds_take(reader, samples.as_mut_ptr(), infos.as_mut_ptr(), N, N as u32);
        if count <= 0 {
            return;
        }
        for i in 0..count as usize {
            let alive = infos[i].instance_state == dds_instance_state_DDS_IST_ALIVE;
            let sample = &*(samples[i] as *const dds_builtintopic_endpoint_t);
            let guid = sample.key.v;
            if !alive || !infos[i].valid_data {
                on_event(match kind {
                    Kind::Writer => DiscoveryEvent::WriterGone { guid },
                    Kind::Reader => DiscoveryEvent::ReaderGone { guid },
                });
                continue;
            }
            let endpoint = Endpoint {
                guid,
                topic: CStr::from_ptr(sample.topic_name).to_string_lossy().into_owned(),
                type_name: CStr::from_ptr(sample.type_name).to_string_lossy().into_owned(),
                keyless: matches!(guid[15] & 0x3f, 3 | 4),
                qos: Qos::from_native(sample.qos),
            };
            on_event(match kind {
                Kind::Writer => DiscoveryEvent::Writer(endpoint),
                Kind::Reader => DiscoveryEvent::Reader(endpoint),
            });
        }
        dds_return_loan(reader, samples.as_mut_ptr(), count);
    }
}

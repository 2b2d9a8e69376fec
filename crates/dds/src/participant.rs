// SPDX-License-Identifier: Apache-2.0
//! A participant, and whom it discovers.

use crate::qos::Native;
use crate::{DdsError, Guid, Qos, Result, check};
use cyclors::*;
use std::ffi::{CStr, CString, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex, PoisonError};

/// The last domain whose ports exist (RTPS 2.5, 9.6.2.3).
pub const MAX_DOMAIN: u32 = 232;
/// The last participant of a domain whose ports are not the next domain's.
const MAX_PARTICIPANT_INDEX: u32 = 119;

/// A remote (or our own) reader or writer.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Its own.
    pub guid: Guid,
    /// As DDS has it (`rt/scan`).
    pub topic: String,
    /// As DDS has it (`sensor_msgs::msg::dds_::LaserScan_`).
    pub type_name: String,
    /// Its type has no key, as all of ROS 2.
    pub keyless: bool,
    /// What it asks or offers.
    pub qos: Qos,
}

/// Who comes and goes. After a crash, when the participant's lease ends.
#[allow(missing_docs)]
#[derive(Clone, Debug)]
pub enum Discovery {
    Writer(Endpoint),
    WriterGone { guid: Guid },
    Reader(Endpoint),
    ReaderGone { guid: Guid },
}

/// A listener whose closure lives as long as its entity.
pub struct Listener {
    // Read by Cyclone DDS only.
    pub native: *mut dds_listener_t,
    _arg: Box<dyn std::any::Any>,
}
unsafe impl Send for Listener {}
unsafe impl Sync for Listener {}
impl Drop for Listener {
    fn drop(&mut self) {
        unsafe { dds_delete_listener(self.native) }
    }
}

pub type OnEntity = Box<dyn Fn(dds_entity_t) + Send + Sync>;
/// What a listener does.
pub struct Callbacks {
    /// There is something to take.
    pub data: OnEntity,
    /// An endpoint was refused: the policy, and how many so far.
    pub incompatible: Box<dyn Fn(u32, i32) + Send + Sync>,
}

unsafe extern "C" fn on_data(e: dds_entity_t, arg: *mut c_void) {
    let cb = &*(arg as *const Callbacks);
    if catch_unwind(AssertUnwindSafe(|| (cb.data)(e))).is_err() {
        tracing::error!("a panic while data was taken in");
    }
}
unsafe extern "C" fn on_req(
    _: dds_entity_t,
    st: dds_requested_incompatible_qos_status_t,
    arg: *mut c_void,
) {
    let cb = &*(arg as *const Callbacks);
    let _ = catch_unwind(AssertUnwindSafe(|| {
        (cb.incompatible)(st.last_policy_id, st.total_count as i32)
    }));
}
unsafe extern "C" fn on_off(
    _: dds_entity_t,
    st: dds_offered_incompatible_qos_status_t,
    arg: *mut c_void,
) {
    let cb = &*(arg as *const Callbacks);
    let _ = catch_unwind(AssertUnwindSafe(|| {
        (cb.incompatible)(st.last_policy_id, st.total_count as i32)
    }));
}

/// A listener that does this.
pub fn listener(cb: Callbacks) -> Listener {
    let arg = Box::new(cb);
    unsafe {
        let native = dds_create_listener(&*arg as *const Callbacks as *mut c_void);
        dds_lset_data_available(native, Some(on_data));
        dds_lset_requested_incompatible_qos(native, Some(on_req));
        dds_lset_offered_incompatible_qos(native, Some(on_off));
        Listener { native, _arg: arg }
    }
}

/// We, in a domain.
pub struct Participant {
    pub(crate) entity: dds_entity_t,
    /// Of this participant.
    pub guid: Guid,
    builtin: Mutex<Vec<(dds_entity_t, Listener)>>,
    _domain: Entity,
}

/// The GUID of one of our entities.
pub fn guid_of(e: dds_entity_t) -> Guid {
    let mut g = dds_guid_t { v: [0; 16] };
    unsafe { dds_get_guid(e, &mut g) };
    g.v
}

/// How far a participant looks for others; never beyond this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// Those that speak over loopback only (`ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST`).
    Loopback,
    /// As well those that announce themselves to their network.
    Machine,
}

impl Range {
    /// Cyclone DDS's configuration. Each setting was tried with Fast DDS and Cyclone DDS in
    /// either range: what follows meets all of them.
    fn config(self) -> String {
        // The interface that Cyclone DDS takes in other processes, where it is left the choice.
        let choice = "<NetworkInterface autodetermine='true'/>";
        let (interfaces, multicast) = match self {
            Self::Loopback => ("", "false"),
            Self::Machine if has_network() => (choice, "spdp"),
            // It would be loopback once more, which is refused.
            Self::Machine => ("", "spdp"),
        };
        // Multicast that lives for no hop stays on the machine. Those who do not hear multicast
        // on loopback are called there again and again, on all ports they may have. Datagrams
        // of the largest size: 39 of 40 samples of 4 MB arrive at Fast DDS, of 11 otherwise.
        // A subscriber that does not keep up is sent what it missed from at most 16 MB. It is
        // told every 20 ms what it should have by now, until it has it: its buffer overflows
        // under 4 MB, and at Cyclone DDS's 100 ms these take four times as long, or get lost.
        format!(
            "<Domain><General><Interfaces><NetworkInterface name='lo'/>{interfaces}</Interfaces>\
             <AllowMulticast>{multicast}</AllowMulticast>\
             <MulticastTimeToLive>0</MulticastTimeToLive>\
             <MaxMessageSize>65500B</MaxMessageSize><FragmentSize>64000B</FragmentSize></General>\
             <Discovery><ParticipantIndex>auto</ParticipantIndex>\
             <MaxAutoParticipantIndex>{MAX_PARTICIPANT_INDEX}</MaxAutoParticipantIndex>\
             <Peers><Peer address='127.0.0.1' prunedelay='inf'/></Peers>\
             <SPDPInterval>1s</SPDPInterval></Discovery>\
             <Internal><HeartbeatInterval minsched='10ms'>20ms</HeartbeatInterval>\
             <Watermarks><WhcHigh>16MB</WhcHigh></Watermarks></Internal></Domain>"
        )
    }
}

/// Whether there is an interface of IPv4 beside loopback.
fn has_network() -> bool {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    all.iter().any(|it| !it.is_loopback() && it.ip().is_ipv4())
}

impl Participant {
    /// Joins a domain (0 to [`MAX_DOMAIN`]).
    pub fn new(id: u32, range: Range, user_data: &[u8]) -> Result<Arc<Participant>> {
        if id > MAX_DOMAIN {
            let reason = format!("{id}; allowed: 0 to {MAX_DOMAIN}");
            return Err(DdsError { what: "domain", reason, full: false });
        }
        crate::log::take_over();
        unsafe {
            let reason = "holds a NUL".to_owned();
            let nul = |_| DdsError { what: "configuration", reason, full: false };
            let config = CString::new(range.config()).map_err(nul)?;
            // Deleted with all in it, should there be no participant.
            let domain = Entity(check("domain", dds_create_domain(id, config.as_ptr()))?);
            let q = Native(dds_create_qos());
            dds_qset_userdata(q.0, user_data.as_ptr() as *const c_void, user_data.len());
            let created = dds_create_participant(id, q.0, null());
            let entity = check("participant", created)?;
            Ok(Arc::new(Participant {
                entity,
                guid: guid_of(entity),
                builtin: Default::default(),
                _domain: domain,
            }))
        }
    }

    /// Tells of everyone there is, and who comes and goes from now on.
    pub fn discover(&self, f: impl Fn(Discovery) + Send + Sync + 'static) -> Result<()> {
        let f = Arc::new(f);
        for (kind, topic) in [
            (Kind::Writer, DDS_BUILTIN_TOPIC_DCPSPUBLICATION),
            (Kind::Reader, DDS_BUILTIN_TOPIC_DCPSSUBSCRIPTION),
        ] {
            let f = f.clone();
            let l = listener(Callbacks {
                data: Box::new(move |rd| unsafe { take_builtin(rd, kind, &*f) }),
                incompatible: Box::new(|_, _| ()),
            });
            let rd = unsafe {
                check("builtin reader", dds_create_reader(self.entity, topic, null(), l.native))?
            };
            self.builtin.lock().unwrap_or_else(PoisonError::into_inner).push((rd, l));
        }
        Ok(())
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        unsafe { dds_delete(self.entity) };
    }
}

/// Deleted when dropped.
struct Entity(dds_entity_t);
impl Drop for Entity {
    fn drop(&mut self) {
        unsafe { dds_delete(self.0) };
    }
}

/// What a builtin reader tells of.
#[derive(Clone, Copy)]
enum Kind {
    Writer,
    Reader,
}

unsafe fn take_builtin(rd: dds_entity_t, kind: Kind, f: &dyn Fn(Discovery)) {
    const N: usize = 32;
    loop {
        let mut si: [dds_sample_info_t; N] = std::mem::zeroed();
        let mut buf = [null_mut::<c_void>(); N];
        let n = dds_take(rd, buf.as_mut_ptr(), si.as_mut_ptr(), N, N as u32);
        if n <= 0 {
            return;
        }
        for i in 0..n as usize {
            let alive = si[i].instance_state == dds_instance_state_DDS_IST_ALIVE;
            let s = &*(buf[i] as *const dds_builtintopic_endpoint_t);
            let guid = s.key.v;
            if !alive || !si[i].valid_data {
                f(match kind {
                    Kind::Writer => Discovery::WriterGone { guid },
                    Kind::Reader => Discovery::ReaderGone { guid },
                });
                continue;
            }
            let e = Endpoint {
                guid,
                topic: CStr::from_ptr(s.topic_name).to_string_lossy().into_owned(),
                type_name: CStr::from_ptr(s.type_name).to_string_lossy().into_owned(),
                keyless: matches!(guid[15] & 0x3f, 3 | 4),
                qos: Qos::from_native(s.qos),
            };
            f(match kind {
                Kind::Writer => Discovery::Writer(e),
                Kind::Reader => Discovery::Reader(e),
            });
        }
        dds_return_loan(rd, buf.as_mut_ptr(), n);
    }
}

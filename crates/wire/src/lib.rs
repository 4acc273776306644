//! Every message that one process of Bulkhead sends to another, and the table of who may talk to whom.
//!
//! Runs in: every process. Sees: bytes from less trusted peers, which it turns into typed messages or refuses.
//! Never: does I/O, allocates more than a stated limit, or accepts a message with bytes left over.
//!
//! One message type stands for one directed edge of the topology, so a request that a peer is not entitled to
//! make cannot even be decoded by the process that it is sent to.

mod admin;
mod broker;
mod bundle;
mod channels;
mod codec;
mod connector;
mod control;
pub mod data;
pub mod examination;
pub mod log;
pub mod orders;
mod roles;
mod site;
pub mod stapler;
pub mod successor;
pub mod templates;
pub mod tls;

pub use admin::{
    ADMIN_SECRET_CHARS, Act, AdminToLauncher, Extent, LEFT_OUT_MAX, LauncherToAdmin, Outcome, ProbeKind,
    REASON_MAX, StandIn, Verb, number_of_name,
};
pub use broker::{BrokerToConnector, ConnectorToBroker, LauncherToBroker};
pub use bundle::{
    BUNDLES_MAX, Bundle, Bundles, FromGuarded, FromWorker, Kind, NUMBERLESS, PREREAD_MAX, ToGuard, ToGuarded,
    ToWorker,
};
pub use channels::{CHANNELS, Edge, carries, carries_any, render, render_oom_steps, render_processes};
pub use codec::{Bytes, DecodeError, Layout, MESSAGE_MAX, Message, NUMBERS_MAX, Text, VERSION};
pub use connector::{
    FromConnector, LauncherToConnector, SERVER_NAME_MAX, SOCKET_NAME_MAX, ToConnector, Unreachable,
};
pub use control::{
    AccessRight, CHALLENGES, Checks, ChildToLauncher, Conditioning, Counters, LauncherToGate,
    LauncherToLogger, LauncherToService, NO_PARTITION, Shed, Source, WorkerLimits, address_of, halves,
    range_text,
};
pub use roles::{
    AccessLogRight, Heartbeat, OOM_STEP_HELPER, OOM_STEP_MAX, OOM_STEP_REAPER, Role, RoleFacts, Scope, Whose,
};
pub use site::{Backend, HeaderOf, LauncherToSite, ProxyHeader, RouteTarget, RuleAction, Speech};

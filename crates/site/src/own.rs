//! This worker's part in serving its connections: which requests are its own, its services, its log.
//!
//! Runs in: the site worker, under the site's uid. Untrusted input: hosts and paths of requests. Must never:
//! answer for another site.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use http::{Request, Response};
use wire::{RouteTarget, WorkerLimits};
use worker::inlet::Inlets;
use worker::log::{Log, now_us};
use worker::routes::{Routes, covers, normal};

use crate::body::{BoundedBody, ResponseBody};
use crate::partition::{Access, Ends, Limits, Partition};
use crate::relay::Relay;

/// LIMIT: a connection on which nothing moves for so long while an answer is under way is closed.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// What the launcher has told this worker.
pub struct Own {
    routes: Routes<RouteTarget>,
    /// Paths of services, longest first, with their partition.
    services: Vec<(String, u16)>,
    relays: RefCell<HashMap<u16, Rc<Relay>>>,
    limits: Limits,
    start_timeout: Duration,
    connections: u32,
    /// The connections that come in.
    pub inlets: Rc<Inlets>,
    log: Log,
}

impl Own {
    /// A worker with these limits and, for now, nothing of its own.
    pub fn new(limits: &WorkerLimits, inlets: Rc<Inlets>, log: Log) -> Self {
        let ms = |ms: u32| Duration::from_millis(ms.into());
        Self {
            routes: Routes::default(),
            services: Vec::new(),
            relays: RefCell::default(),
            limits: Limits {
                head_bytes: limits.head_bytes as usize,
                head_timeout: ms(limits.head_timeout_ms),
                body_bytes: limits.body_bytes,
                idle_timeout: ms(limits.idle_timeout_ms),
                stall_timeout: STALL_TIMEOUT,
            },
            start_timeout: ms(limits.start_timeout_ms),
            connections: limits.connections,
            inlets,
            log,
        }
    }

    /// Adds a line of the table.
    pub fn route(&mut self, host: &str, path: &str, target: RouteTarget, partition: u16) {
        self.routes.add(host, path, target);
        if target == RouteTarget::Service && !self.services.iter().any(|(known, _)| known == path) {
            self.services.push((path.into(), partition));
            self.services.sort_by_key(|(path, _)| usize::MAX - path.len());
        }
    }

    /// The way to the service `partition`.
    pub fn relay(&self, partition: u16) -> Rc<Relay> {
        let name = || {
            let path =
                self.services.iter().find(|(_, number)| *number == partition).map(|(path, _)| path.as_str());
            format!("service at {}", path.unwrap_or("(no path)"))
        };
        let mut relays = self.relays.borrow_mut();
        relays
            .entry(partition)
            .or_insert_with(|| Relay::new(&name(), self.start_timeout, self.connections))
            .clone()
    }

    /// The log.
    pub fn log(&self) -> &Log {
        &self.log
    }
}

impl Partition for Own {
    fn owns(&self, host: &[u8], path: &str) -> bool {
        self.routes.find(host, path).is_some_and(|target| *target != RouteTarget::Elsewhere)
    }

    fn service(&self, path: &str) -> Option<usize> {
        let path = normal(path);
        let found = self.services.iter().find(|(prefix, _)| covers(prefix, &path));
        found.map(|(_, partition)| usize::from(*partition))
    }

    async fn relay(
        &self,
        service: usize,
        ends: Ends,
        request: Request<BoundedBody>,
    ) -> Response<ResponseBody> {
        let relay = Own::relay(self, service as u16);
        relay.send(ends, request).await
    }

    fn record(&self, access: &Access<'_>) {
        self.inlets.counters.answered();
        self.log.access(&wire::log::Access {
            time_us: now_us(),
            duration_us: u32::try_from(access.duration_us).unwrap_or(u32::MAX),
            site: self.log.site(),
            peer: access.ends.peer,
            status: access.status,
            body_bytes: access.body_bytes,
            version: if access.method.is_empty() { u8::MAX } else { access.minor },
            method: access.method.as_bytes(),
            target: access.target.as_bytes(),
            host: access.host,
            referer: access.referer,
            agent: access.user_agent,
        });
    }

    fn draining(&self) -> bool {
        self.inlets.draining()
    }

    async fn drained(&self) {
        self.inlets.drained().await;
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }
}

//! What a service says to its site's publisher, and what a publisher sends.
//!
//! Runs in: `rogue`, in the place of a service or of a publisher. Sees: what is answered. Never: reads it.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};

use templates::Sources;
use wire::templates::{MEMORY_BYTES, PublisherToService, SOURCE_PART_MAX, ServiceToPublisher};
use wire::{Bytes, Text};

use crate::deeds::{BETWEEN_MS, TOO_MANY};
use crate::hands::{encoded, flood, send, send_wrong, wrong};
use crate::place::Place;

/// As a service: versions that there are not, reasons that are not for a terminal, and messages that are none.
pub fn service_to_publisher(place: &mut Place) {
    for channel in &place.publishers {
        for version in [0, 1, u64::MAX] {
            send(channel, &encoded(&ServiceToPublisher::Serving {}), &[]);
            send(channel, &encoded(&ServiceToPublisher::Staged { version }), &[]);
            send(channel, &encoded(&ServiceToPublisher::Active { version }), &[]);
            let reason = Text::new("\x1b[2Jforged-by-rogue");
            send(channel, &encoded(&ServiceToPublisher::Refused { version, reason }), &[]);
        }
    }
    place.tell("pages: versions that there are not");
    place.live(BETWEEN_MS);
    let good = encoded(&ServiceToPublisher::Serving {});
    for channel in &place.publishers {
        wrong(&good).iter().for_each(|one| send_wrong(channel, one, place.pipe()));
        flood(channel, TOO_MANY, &[place.pipe()]);
    }
}

/// As a publisher: leaves its successor what is no version, in all of the memory and as far beyond as that grows. How
/// far it came.
pub fn fill(memory: OwnedFd) -> u64 {
    let mut memory = File::from(memory);
    let mut nonsense = vec![255; MEMORY_BYTES as usize / 2];
    nonsense[..8].copy_from_slice(b"versions");
    // Two halves have room.
    for _ in 0..3 {
        if memory.write_all(&nonsense).is_err() {
            break;
        }
    }
    memory.stream_position().unwrap_or_default()
}

/// As a publisher: what a service needs in order to start.
pub fn send_version(channel: &OwnedFd) {
    let mut sources = Sources::default();
    let (name, source) = ("page.html", "page of the rogue");
    let _ = sources.add(name.into(), source.into());
    let version = sources.version();
    let (name, source) = (Text::new(name), Bytes(source.into()));
    send(channel, &encoded(&PublisherToService::Version { version }), &[]);
    send(channel, &encoded(&PublisherToService::Template { name, complete: true, source }), &[]);
    send(channel, &encoded(&PublisherToService::Stage { version }), &[]);
    send(channel, &encoded(&PublisherToService::Activate { version }), &[]);
}

/// As a publisher: parts of no template, templates without end, versions that are not what they say, and messages that
/// are none.
pub fn publisher_to_services(place: &mut Place) {
    for channel in &place.clients {
        let more =
            || PublisherToService::More { complete: false, source: Bytes(vec![b'{'; SOURCE_PART_MAX]) };
        let stage = |version| encoded(&PublisherToService::Stage { version });
        for version in [0, 7, u64::MAX] {
            send(channel, &encoded(&more()), &[]);
            send(channel, &encoded(&PublisherToService::Version { version }), &[]);
            let name = Text::new("\x1b[2Jforged-by-rogue\0");
            let source = Bytes(vec![255; 100]);
            let template = PublisherToService::Template { name, complete: false, source };
            send(channel, &encoded(&template), &[]);
            send(channel, &stage(version), &[]);
            send(channel, &encoded(&PublisherToService::Version { version }), &[]);
            send(channel, &encoded(&template), &[]);
            for _ in 0..20 {
                send(channel, &encoded(&more()), &[]);
                place.breathe();
            }
            send(channel, &stage(version), &[]);
            send(channel, &encoded(&PublisherToService::Activate { version }), &[]);
            send(channel, &encoded(&PublisherToService::Discard { version }), &[]);
            send(channel, &encoded(&PublisherToService::Go {}), &[]);
        }
    }
    place.tell("pages: templates without end, and versions that are none");
    place.live(BETWEEN_MS);
    let good = encoded(&PublisherToService::Go {});
    for channel in &place.clients {
        for one in wrong(&good) {
            send_wrong(channel.as_fd(), &one, place.pipe());
        }
        flood(channel, TOO_MANY, &[place.pipe()]);
    }
    place.tell("pages: messages that are none");
}

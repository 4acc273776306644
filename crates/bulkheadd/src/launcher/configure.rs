//! What a new process is sent before it serves, and who is told of it.
//!
//! Runs in: the launcher, as root. Sees: the checked configuration. Never: connects two processes between which
//! `wire::CHANNELS` has no edge.

use wire::{LauncherToAdmin, NO_PARTITION, Role, Text};

use crate::launcher::Launcher;
use supervisor::error::Error;
use supervisor::life::Life;
use supervisor::process::Stage;
use supervisor::setup::Messages;
use supervisor::setup::route_table::RouteTable;
use supervisor::slots::{Running, sockets_of};

impl Launcher {
    /// Configures every process that was started; ends those for which that fails.
    pub(super) fn configure_new(&mut self) {
        while let Some((serial, begun)) = self.supervisor.next_unconfigured() {
            if let Err(error) = begun.and_then(|()| self.configure(serial))
                && let Some(ticket) = self.supervisor.not_configured(serial, &error)
            {
                let title =
                    self.supervisor.process(serial).map(|process| self.supervisor.spec(process.slot).title());
                self.came_up(serial, ticket, Err(format!("{}: {error}", title.unwrap_or_default())));
            }
        }
    }

    /// Sends a new process what it must know, and tells others that it is there.
    fn configure(&mut self, serial: u64) -> Result<(), Error> {
        let (supervisor, from) = (&mut self.supervisor, &mut self.components);
        let Some(process) = supervisor.process(serial) else { return Ok(()) };
        let slot = process.slot;
        if let Some(stderr) = &process.stderr {
            from.stderr_drain.add(serial, stderr)?;
        }
        if process.stage == Stage::Retiring {
            // It was given up before it was sent anything; what it prints is read.
            return supervisor.register_with_loggers(serial);
        }
        supervisor.hand_own_calls(serial)?;
        match supervisor.spec(slot).role {
            Role::Logger => {
                for (message, descriptor) in supervisor.context().logger_setup(&from.log_rotation.logs)? {
                    supervisor.pass(serial, &message, descriptor);
                }
                supervisor.hand_logs_to(serial)?;
                supervisor.let_logger_read();
            }
            Role::Admin => self.configure_admin(serial)?,
            Role::Gate => self.configure_gate(serial, slot)?,
            Role::Site => {
                let spec = supervisor.spec(slot);
                let specs = supervisor.specs_beside(slot);
                let secrets = from.ticket_keys.messages(spec.site);
                let table = RouteTable::new(&supervisor.context().config, &specs);
                let messages = supervisor.context().site_setup(spec, &table, secrets)?;
                for (message, descriptor) in messages {
                    supervisor.send(serial, &message, descriptor);
                }
            }
            Role::Signer => {
                let ticket = supervisor.process(serial).and_then(|process| process.ticket);
                let signer = (serial, self.transactions.lacking(ticket));
                let unread = from.certificates.files.configure_signer(supervisor, signer);
                ticket.into_iter().for_each(|id| self.fail_of_certificates(id, unread.iter()));
            }
            Role::Broker => {
                supervisor.configure_by_role(serial)?;
                from.probes.hand_calls_to(supervisor, serial)?;
            }
            Role::Publisher => {
                let ticket = supervisor.process(serial).and_then(|process| process.ticket);
                supervisor.configure_publisher(serial, self.transactions.keeps_templates(ticket))?;
            }
            _ => supervisor.configure_by_role(serial)?,
        }
        self.open_log_of(serial);
        self.supervisor.register_with_loggers(serial)?;
        self.supervisor.send_all_broken(serial);
        self.supervisor.send_all_without_room(serial);
        self.supervisor.connect(serial)
    }

    /// Has loggers have the access log of a process's site, before the process can write anything there.
    fn open_log_of(&mut self, serial: u64) {
        let site = self.supervisor.spec_of(serial).site;
        if site != NO_PARTITION {
            self.components.log_rotation.need(&mut self.supervisor, site);
        }
    }

    fn configure_gate(&mut self, serial: u64, slot: usize) -> Result<(), Error> {
        let supervisor = &mut self.supervisor;
        let chain = supervisor.chain_ends()?;
        // What changes with a reload that is under way, a gate is sent when that holds.
        let before = self.transactions.before();
        let (tables, sockets) = match before {
            Some(Running { config, listeners, .. }) => (Messages { config }, &listeners[..]),
            None => (supervisor.context().messages(), supervisor.listeners()),
        };
        let sockets = sockets_of(sockets, supervisor.spec(slot).index)?;
        let specs = supervisor.specs_for(Life::Serving);
        let messages = supervisor.context().gate_setup(tables, sockets, &specs, chain);
        for (message, descriptor) in messages {
            supervisor.send(serial, &message, descriptor);
        }
        self.components.bans.send_bans(supervisor, serial);
        Ok(())
    }

    fn configure_admin(&mut self, serial: u64) -> Result<(), Error> {
        let supervisor = &mut self.supervisor;
        supervisor.send(serial, &LauncherToAdmin::Socket {}, Some(self.admin_socket.socket()?));
        for (target, name) in self.components.admin_commands.targets.all() {
            supervisor.send(serial, &LauncherToAdmin::Target { target, name: Text::new(name) }, None);
        }
        supervisor.send(serial, &LauncherToAdmin::Secret { secret: self.admin_socket.secret() }, None);
        supervisor.send(serial, &LauncherToAdmin::Begin {}, None);
        Ok(())
    }
}

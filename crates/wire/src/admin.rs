//! Messages between the launcher and admin, which speaks to the operator's commands.
//!
//! Runs in: the launcher (root) and admin. Sees: in the launcher, bytes from admin, which may be compromised. Never: a
//! string on the way to the launcher.

use crate::codec::{Text, choice, messages};
use crate::control::{Counters, Shed};
use crate::roles::Role;
use crate::stapler::Staple;
use crate::tls::{Holding, Verdict};

choice! {
    /// How an order of the administrator ended.
    pub enum Outcome {
        /// It is done.
        0 => Done,
        /// The new process did not come up; the old one, if any, goes on.
        1 => Failed,
        /// It cannot be done now: another of the kind is under way.
        2 => Busy,
        /// Some of it is done, and some is not.
        3 => Partly,
    }
}

choice! {
    /// What happens to something that the configuration names.
    pub enum Verb {
        /// It comes.
        0 => Added,
        /// It stays, and is another.
        1 => Changed,
        /// It goes.
        2 => Removed,
        /// It begins anew.
        3 => Relaunched,
        /// It is read again.
        4 => Reread,
    }
}

impl Verb {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Removed => "removed",
            Self::Relaunched => "relaunched",
            Self::Reread => "read again",
        }
    }
}

choice! {
    /// What is done with a process when something has changed.
    pub enum Act {
        /// It is started.
        0 => Start,
        /// It gets a successor, which is started beside it.
        1 => Replace,
        /// It is sent messages.
        2 => Update,
        /// It finishes what it has begun, and ends.
        3 => Stop,
    }
}

impl Act {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Replace => "replace",
            Self::Update => "update",
            Self::Stop => "stop",
        }
    }
}

choice! {
    /// What a probe is to find out.
    pub enum ProbeKind {
        /// Which ways out of the jail there are.
        0 => Attempts,
        /// How much of the machine the jail exposes.
        1 => Score,
        /// Whether system calls of 32-bit programs come through; where they do not, the probe is ended.
        2 => Foreign,
        /// Which calls get past the policy, of all values of all arguments that one might look at.
        3 => Sweep,
    }
}

choice! {
    /// What there is instead of a file of sites that was left out.
    pub enum StandIn {
        /// Its sites, as they run.
        0 => Running,
        /// The copy of the file as it was good last.
        1 => LastGood,
        /// 503 for its hosts.
        2 => Unavailable,
        /// Nothing.
        3 => Nothing,
        /// The file is a certificate, without which the signer runs: handshakes with its site fail.
        4 => NoCertificate,
    }
}

impl StandIn {
    /// As programs read it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::LastGood => "last good copy",
            Self::Unavailable => "503",
            Self::Nothing => "nothing",
            Self::NoCertificate => "no certificate",
        }
    }
}

choice! {
    /// Which files of sites a reload takes in.
    pub enum Extent {
        /// All of them, and the main file.
        0 => All,
        /// Those of which the kernel has said that something has happened to them.
        1 => Seen,
        /// That of one site.
        2 => One,
    }
}

/// The number that stands for the name of a site which the launcher may not know yet, as nobody sends the launcher a
/// name: FNV-1a. Two names of one number are two files that whoever writes files of sites has named so.
pub fn number_of_name(name: &str) -> u64 {
    let step = |number: u64, byte: u8| (number ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// LIMIT: bytes of what is wrong with a file of sites that was left out; what is longer is cut, and `check` says all of
/// it.
pub const LEFT_OUT_MAX: usize = 2048;

/// LIMIT: bytes of why something cannot be done: some eighty mistakes of a configuration, each with its place and its
/// remedy.
pub const REASON_MAX: usize = 16 * 1024;

/// Hexadecimal digits of the secret that every order to the admin role begins with: 256 bits.
pub const ADMIN_SECRET_CHARS: usize = 64;

messages! {
    /// From the launcher to the admin role.
    pub enum LauncherToAdmin {
        /// The listening administration socket comes along.
        1 => Socket {},
        /// The name of what can be relaunched under this number.
        2 => Target { target: u32, name: Text<128> },
        /// What every order begins with.
        3 => Secret { secret: Text<ADMIN_SECRET_CHARS> },
        /// All of the above has been said: serve.
        4 => Begin {},
        /// One process, in answer to `Status`. `oom_kills` of the launcher are those of all processes; `version` is
        /// that of the launcher which has started the process, and `is_before` says that this is one before.
        5 => Process {
            ticket: u32, role: Role, name: Text<128>, pid: u32, uid: u32, state: Text<32>, restarts: u32,
            age_ms: u64, counters: Counters, last_exit: Text<64>, jit: bool, oom_kills: u32,
            version: Text<64>, is_before: bool,
        },
        /// The answer to `Status` is complete; `missing` names layers that could not be applied. How long the
        /// launcher's loop has been busy at most with one step, since its start and in the last half minute, and what
        /// it did in most of that step.
        6 => StatusEnd {
            ticket: u32, missing: Text<1024>, longest_step_us: u64, longest_step: Text<32>, longest_lately_us: u64,
            longest_lately: Text<32>,
        },
        /// The answer to an order that has no other.
        7 => Answer { ticket: u32, outcome: Outcome, reason: Text<REASON_MAX> },
        /// Asks for `Counters`.
        8 => Report {},
        /// In answer to `Probe`: what the probe says comes along, to be read to its end.
        9 => ProbeOutput { ticket: u32 },
        /// In answer to `Conditioning`: an address range that a process holds much of, as in `ChildToLauncher::Heavy`.
        10 => TopRange {
            ticket: u32, name: Text<128>, address_high: u64, address_low: u64, bits: u8, held: u32, waiting: u32,
        },
        /// In answer to `Conditioning`: what a process has shed.
        11 => Shed { ticket: u32, role: Role, name: Text<128>, shed: Shed },
        /// The answer to `Conditioning` is complete.
        12 => ConditioningEnd { ticket: u32 },
        /// In answer to `Bans`: a client that the site `name` refuses for so many seconds more.
        20 => Ban { ticket: u32, name: Text<128>, address_high: u64, address_low: u64, seconds: u32 },
        /// The answer to `Bans` is complete.
        21 => BansEnd { ticket: u32 },
        /// In answer to `Certificates`: one of the site `name`, whose file is `file`; what became of that when it was
        /// read
        /// last, what is in use, and how it is with its staple.
        22 => Certificate {
            ticket: u32, name: Text<128>, file: Text<4096>, verdict: Verdict, holding: Holding, staple: Staple,
        },
        /// The answer to `Certificates` is complete.
        23 => CertificatesEnd { ticket: u32 },
        /// Before the answer to `Reload`: what has changed in the configuration, and which keys of it.
        24 => Changed { ticket: u32, verb: Verb, what: Text<256>, keys: Text<512> },
        /// After that: what it means for a process, and why.
        25 => Affected { ticket: u32, act: Act, process: Text<128>, why: Text<512> },
        /// Before the answer to `Upgrade`: how many processes of a role were replaced, and how many of the version
        /// before go on.
        26 => Upgraded { ticket: u32, role: Role, from: Text<64>, to: Text<64>, replaced: u32, kept: u32 },
        /// In answer to `Republish`: what the publisher says comes along, to be read to its end.
        27 => PublisherOutput { ticket: u32 },
        /// Before the answer to `Send`: a channel to the process `worker` of the service, from 0 on, comes along.
        28 => ServiceChannel { ticket: u32, worker: u16 },
        /// Nothing has this number any more, and nothing will.
        29 => Forget { target: u32 },
        /// Before the end of the answer to `StatusOf`: where the next page begins.
        30 => StatusNext { ticket: u32, next: u32 },
        /// Before the end of the answer to `Status`: how much of the range of uids is given out, and how many of these
        /// the configuration does not have.
        31 => UidShare { ticket: u32, first: u32, last: u32, taken: u32, left: u32, is_scarce: bool },
        /// After that: how many processes of a launcher before work on, and whether an upgrade is under way that
        /// replaces them.
        32 => Before { ticket: u32, processes: u32, is_upgrading: bool },
        /// Before the answer to `Reload`, `Relaunch` and `Upgrade`, and before the end of that to `Status`: a file of
        /// sites or a certificate that was left out, what there is instead, its sites and hosts as far as they are
        /// known, whether it could be read to its end, and why.
        33 => LeftOut {
            ticket: u32, file: Text<4096>, stand_in: StandIn, sites: Text<512>, hosts: Text<1024>, is_whole: bool,
            reason: Text<LEFT_OUT_MAX>,
        },
    }
}

messages! {
    /// From the admin role to the launcher: the whole of what it may ask for.
    pub enum AdminToLauncher {
        /// Set-up is complete.
        1 => Ready {},
        /// The answer to `Report`.
        2 => Counters { counters: Counters },
        /// List every process.
        3 => Status { ticket: u32 },
        /// Start a new process of `target`, then retire the old one.
        4 => Relaunch { ticket: u32, target: u32 },
        /// End everything in order.
        5 => Stop { ticket: u32 },
        /// Start a probe in the jail of `target`.
        6 => Probe { ticket: u32, target: u32, kind: ProbeKind },
        /// Ask every gate and site worker for what it has shed.
        7 => Conditioning { ticket: u32 },
        /// Open the logs anew, as somebody has moved them away.
        50 => Reopen { ticket: u32 },
        /// List the clients that sites refuse since their records failed to decrypt.
        20 => Bans { ticket: u32 },
        /// Make an end of the bans of this client, as in `ChildToLauncher::Tampered`.
        21 => Unban { ticket: u32, address_high: u64, address_low: u64 },
        /// List all certificates of sites.
        22 => Certificates { ticket: u32 },
        /// Read the configuration again, and change what has changed; or only say what would, if `dry_run`.
        23 => Reload { ticket: u32, dry_run: bool },
        /// Put the program of the launcher that is installed now, and those of all roles, in the place of those that
        /// run; or only say whether that could be done, if `dry_run`.
        24 => Upgrade { ticket: u32, dry_run: bool },
        /// The same as `Reload`, of the files of sites alone that have changed as far as the kernel has said so:
        /// whoever asks has changed one of them just now.
        25 => ReloadSites { ticket: u32 },
        /// Have the publisher that is called `target` read its templates again and publish them.
        26 => Republish { ticket: u32, target: u32 },
        /// Make a channel to each process of the service that is called `target`, for an order.
        27 => Send { ticket: u32, target: u32 },
        /// Take the uids back that the operator has written down in the state folder.
        29 => TakeUidsBack { ticket: u32 },
        /// List the processes of one role, of one site (with its services and what belongs to them), or of one role of
        /// one site: those from the place `from` on, and so many.
        28 => StatusOf {
            ticket: u32, by_role: bool, role: Role, by_site: bool, site: u32, from: u32, limit: u32,
        },
        /// List the processes of one site, those of others that have a uid of one of them or of the launcher, and the
        /// launcher.
        31 => StatusAlike { ticket: u32, site: u32 },
        /// The same as `Reload` or `ReloadSites`, with more to say: whether one file of sites that is wrong refuses
        /// everything; which files are taken in; and the site whose file alone that is, or whose file must be good, by
        /// the number of its name, or 0.
        30 => ReloadOf { ticket: u32, dry_run: bool, all_or_nothing: bool, extent: Extent, site: u64 },
        /// The same as `Relaunch` of the signer, which goes on without the certificates that it cannot use.
        32 => RelaunchLeavingOut { ticket: u32, target: u32 },
    }
}

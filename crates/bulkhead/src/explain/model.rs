//! What falls with a process: assets, processes, and the losses that follow from one to the other.
//!
//! Runs in: the `bulkhead` command; pure. Sees: names of the operator's configuration. Never: does I/O, or knows
//! how a particular server is built; that is said by `ours` and `others`.
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 3.3:
//! an edge (a, b) means that who can compromise a can compromise b; edges are transitive.

/// What kind of thing can be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What answers for a site: what it knows and does.
    Site,
    /// What answers for a service: what it knows and does.
    Service,
    /// A folder's files: that they are read.
    Files,
    /// The private keys of a site's certificates.
    Keys,
    /// The rows of a database.
    Data,
    /// The rows of one table of it.
    Table,
    /// The password of a database's user.
    Password,
    /// The key of a certificate that this machine shows to a database server, or to another machine.
    ClientKey,
    /// What a service shows to a data proxy, which says what it may call.
    Token,
    /// What users of a site or service send and are answered.
    Users,
    /// The truth of a log from now on.
    Log,
    /// The right to stop the server and to relaunch parts of it.
    Orders,
    /// The whole machine.
    Host,
}

impl Kind {
    /// The word for it in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Site => "site",
            Self::Service => "service",
            Self::Files => "files",
            Self::Keys => "keys",
            Self::Data => "data",
            Self::Table => "table",
            Self::Password => "password",
            Self::ClientKey => "client_key",
            Self::Token => "token",
            Self::Users => "users",
            Self::Log => "log",
            Self::Orders => "orders",
            Self::Host => "host",
        }
    }
}

/// A thing that can be lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asset {
    /// What kind of thing it is.
    pub kind: Kind,
    /// Its name, unique within its kind.
    pub name: String,
    /// A short name for the head of a column, within its site's.
    pub label: String,
    /// The site it belongs to, by its number; `None` if it is the server's.
    pub site: Option<usize>,
}

/// How much of an asset is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loss {
    /// Some: false lines in a log, a share of the connections.
    Part,
    /// All of it.
    Whole,
}

impl Loss {
    /// The word for it in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Part => "part",
            Self::Whole => "all",
        }
    }
}

/// An asset that is lost when a process falls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The asset, by its number.
    pub asset: usize,
    /// How much of it.
    pub loss: Loss,
    /// Why.
    pub how: String,
}

/// Another process that falls when this one does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drag {
    /// The other process, by its number.
    pub process: usize,
    /// Why.
    pub how: String,
}

/// A process, or several that are one to an attacker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// What people call it.
    pub name: String,
    /// Whether it is trusted with everything. It is then not counted among those that may fall.
    pub is_root: bool,
    /// What it reaches itself.
    pub reaches: Vec<Reach>,
    /// What falls with it.
    pub drags: Vec<Drag>,
}

/// A server: what it has, and which process reaches what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Everything that can be lost.
    pub assets: Vec<Asset>,
    /// Every process.
    pub processes: Vec<Process>,
}

/// How much falls with a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blast {
    /// Assets lost altogether.
    pub whole: usize,
    /// Assets lost in part.
    pub part: usize,
    /// Assets there are.
    pub total: usize,
}

impl Blast {
    /// The share of assets lost altogether, 0 to 1.
    pub fn lost(self) -> f64 {
        self.whole as f64 / self.total.max(1) as f64
    }

    /// The share of assets lost altogether or in part, 0 to 1.
    pub fn touched(self) -> f64 {
        (self.whole + self.part) as f64 / self.total.max(1) as f64
    }
}

/// What one process of a server costs if it falls: the worst, and the average of all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary<'m> {
    /// The process with which most falls, and how much.
    pub worst: Option<(&'m Process, Blast)>,
    /// How many processes were looked at.
    pub processes: usize,
    /// The average share of assets lost altogether, 0 to 1.
    pub lost: f64,
    /// The average share of assets lost altogether or in part, 0 to 1.
    pub touched: f64,
}

impl Model {
    /// Every process that falls when `process` does, itself first, with the reason.
    pub fn falls(&self, process: usize) -> Vec<Drag> {
        let mut known = vec![false; self.processes.len()];
        known[process] = true;
        let mut fallen = vec![Drag { process, how: String::new() }];
        let mut next = 0;
        // Once all have fallen there are none to look for; with a thousand of one uid that is soon.
        while next < fallen.len() && fallen.len() < self.processes.len() {
            let puller = &self.processes[fallen[next].process];
            let by = if next == 0 { String::new() } else { format!("by {}: ", puller.name) };
            for drag in &puller.drags {
                if !std::mem::replace(&mut known[drag.process], true) {
                    fallen.push(Drag { process: drag.process, how: format!("{by}{}", drag.how) });
                }
            }
            next += 1;
        }
        fallen
    }

    /// What is lost when `process` falls, one entry for each asset; the shortest way wins among equals.
    pub fn losses(&self, process: usize) -> Vec<Option<Reach>> {
        let mut losses: Vec<Option<Reach>> = vec![None; self.assets.len()];
        for drag in self.falls(process) {
            let fallen = &self.processes[drag.process];
            let by = if drag.process == process { String::new() } else { format!("by {}: ", fallen.name) };
            for reach in &fallen.reaches {
                let known = &mut losses[reach.asset];
                if known.as_ref().is_none_or(|known| known.loss < reach.loss) {
                    *known = Some(Reach { how: format!("{by}{}", reach.how), ..reach.clone() });
                }
            }
        }
        losses
    }

    /// How much is lost when `process` falls.
    pub fn blast(&self, process: usize) -> Blast {
        let losses = self.losses(process);
        let count = |loss| losses.iter().flatten().filter(|reach| reach.loss == loss).count();
        Blast { whole: count(Loss::Whole), part: count(Loss::Part), total: self.assets.len() }
    }

    /// What one process costs, those left out that are trusted with everything.
    pub fn summary(&self) -> Summary<'_> {
        let blasts: Vec<(&Process, Blast)> = (self.processes.iter().enumerate())
            .filter(|(_, process)| !process.is_root)
            .map(|(number, process)| (process, self.blast(number)))
            .collect();
        let mean = |share: fn(Blast) -> f64| {
            blasts.iter().map(|(_, blast)| share(*blast)).sum::<f64>() / blasts.len().max(1) as f64
        };
        let size = |blast: &Blast| (blast.whole, blast.part);
        // The first of equals, as tables show it first.
        let worst = blasts.iter().rev().max_by_key(|(_, blast)| size(blast)).copied();
        Summary { worst, processes: blasts.len(), lost: mean(Blast::lost), touched: mean(Blast::touched) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asset(name: &str) -> Asset {
        Asset { kind: Kind::Files, name: name.into(), label: name.into(), site: None }
    }

    fn process(name: &str, reaches: &[(usize, Loss)], drags: &[usize]) -> Process {
        let reach = |&(asset, loss): &(usize, Loss)| Reach { asset, loss, how: format!("{name} can") };
        let drag = |&process: &usize| Drag { process, how: format!("{name} drags") };
        Process {
            name: name.into(),
            is_root: name == "root",
            reaches: reaches.iter().map(reach).collect(),
            drags: drags.iter().map(drag).collect(),
        }
    }

    /// a reaches 0 and drags b, which drags c and a; c reaches all; root is not counted.
    fn model() -> Model {
        let processes = vec![
            process("a", &[(0, Loss::Part)], &[1]),
            process("b", &[(0, Loss::Whole), (1, Loss::Part)], &[2, 0]),
            process("c", &[(1, Loss::Part)], &[]),
            process("root", &[(0, Loss::Whole), (1, Loss::Whole), (2, Loss::Whole)], &[0, 1, 2]),
        ];
        Model { assets: ["x", "y", "z"].map(asset).to_vec(), processes }
    }

    #[test]
    fn dependence_is_transitive_and_ends() {
        let falls = model().falls(0);
        assert_eq!(falls.iter().map(|drag| drag.process).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(falls[1].how, "a drags");
        assert_eq!(falls[2].how, "by b: b drags");
        assert_eq!(model().falls(2).len(), 1);
    }

    #[test]
    fn the_greatest_loss_counts_and_says_by_whom() {
        let losses = model().losses(0);
        let first = losses[0].as_ref().unwrap();
        assert_eq!((first.loss, first.how.as_str()), (Loss::Whole, "by b: b can"));
        assert_eq!(losses[1].as_ref().unwrap().how, "by b: b can");
        assert_eq!(losses[2], None);
        assert_eq!(model().losses(2)[0], None);
    }

    #[test]
    fn a_blast_is_counted_and_shared_out() {
        let blast = model().blast(0);
        assert_eq!(blast, Blast { whole: 1, part: 1, total: 3 });
        assert!((blast.lost() - 1.0 / 3.0).abs() < 1e-9);
        assert!((blast.touched() - 2.0 / 3.0).abs() < 1e-9);
        assert_eq!(model().blast(3), Blast { whole: 3, part: 0, total: 3 });
        assert!(Blast { whole: 0, part: 0, total: 0 }.lost() < 1e-9);
    }

    #[test]
    fn a_summary_leaves_the_trusted_out() {
        let model = model();
        let summary = model.summary();
        assert_eq!(summary.processes, 3);
        let (worst, blast) = summary.worst.unwrap();
        assert_eq!((worst.name.as_str(), blast.whole), ("a", 1));
        assert!((summary.lost - 2.0 / 9.0).abs() < 1e-9, "{summary:?}");
        assert!((summary.touched - 5.0 / 9.0).abs() < 1e-9, "{summary:?}");
        let nothing = Model { assets: Vec::new(), processes: Vec::new() };
        assert_eq!(nothing.summary().worst, None);
    }
}

//! What falls with a process: assets, processes, and the losses that follow from one to the other.
//!
//! Runs in: the `bulkhead` command; pure. Sees: names of the operator's configuration. Never: does I/O, or knows
//! how a particular server is built; that is said by `ours` and `others`.
//!
//! The work grows with what there is to say: a hundred thousand processes that share nothing are as many short answers,
//! and those that all fall with one another are one.
//!
//! Source: Krohn, "Building Secure High-Performance Web Services with OKWS", USENIX ATC 2004, 3.3:
//! an edge (a, b) means that who can compromise a can compromise b; edges are transitive.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use super::inventory::Assets;

/// What kind of thing can be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AssetKind {
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

impl AssetKind {
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
    pub kind: AssetKind,
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
    pub how: Rc<str>,
}

/// Another process that falls when this one does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drag {
    /// The other process, by its number.
    pub process: usize,
    /// Why.
    pub how: Rc<str>,
}

/// Processes of which each falls with each other.
#[derive(Clone, Debug)]
pub struct Circle {
    /// Their numbers, in order.
    pub members: Vec<usize>,
    /// Why.
    pub how: Rc<str>,
}

/// A process, or several that are one to an attacker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedProcess {
    /// What people call it.
    pub name: String,
    /// Whether it is trusted with everything. It is then not counted among those that may fall.
    pub is_root: bool,
    /// What it reaches itself.
    pub reaches: Vec<Reach>,
    /// What it reaches as others do: one list for all of them.
    pub common: Option<Rc<[Reach]>>,
    /// What falls with it.
    pub drags: Vec<Drag>,
    /// The circle that it is in, by its number.
    pub circle: Option<usize>,
}

/// A server: what it has, and which process reaches what.
#[derive(Clone, Debug)]
pub struct Model {
    /// Everything that can be lost.
    pub assets: Assets,
    /// Every process.
    pub processes: Vec<ExplainedProcess>,
    /// Those that fall together.
    pub circles: Vec<Circle>,
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
    pub worst: Option<(&'m ExplainedProcess, Blast)>,
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
        let mut known = HashSet::from([process]);
        let mut circles = HashSet::new();
        let mut fallen = vec![Drag { process, how: "".into() }];
        let mut next = 0;
        while next < fallen.len() {
            let puller = &self.processes[fallen[next].process];
            let by = if next == 0 { String::new() } else { format!("by {}: ", puller.name) };
            let begin = fallen.len();
            // Whoever falls with the first of a circle falls with none of the others for the first time.
            let circle =
                puller.circle.filter(|circle| circles.insert(*circle)).map(|circle| &self.circles[circle]);
            let together =
                circle.into_iter().flat_map(|circle| circle.members.iter().map(|&one| (one, &circle.how)));
            for (process, how) in puller.drags.iter().map(|drag| (drag.process, &drag.how)).chain(together) {
                if known.insert(process) {
                    let how = if by.is_empty() { how.clone() } else { format!("{by}{how}").into() };
                    fallen.push(Drag { process, how });
                }
            }
            fallen[begin..].sort_by_key(|drag| drag.process);
            next += 1;
        }
        fallen
    }

    /// The losses when `process` falls, one entry for each asset that is, in their order; the shortest way wins among
    /// equals.
    pub fn losses(&self, process: usize) -> Vec<Reach> {
        let mut losses: BTreeMap<usize, Reach> = BTreeMap::new();
        let mut common: Vec<&Rc<[Reach]>> = Vec::new();
        for drag in self.falls(process) {
            let fallen = &self.processes[drag.process];
            let by = if drag.process == process { String::new() } else { format!("by {}: ", fallen.name) };
            let is_new = |list: &&Rc<[Reach]>| !common.iter().any(|known| Rc::ptr_eq(known, list));
            let shared = fallen.common.as_ref().filter(is_new);
            common.extend(shared);
            for reach in fallen.reaches.iter().chain(shared.into_iter().flat_map(|list| list.iter())) {
                if losses.get(&reach.asset).is_none_or(|known| known.loss < reach.loss) {
                    let how =
                        if by.is_empty() { reach.how.clone() } else { format!("{by}{}", reach.how).into() };
                    losses.insert(reach.asset, Reach { how, ..*reach });
                }
            }
        }
        losses.into_values().collect()
    }

    /// How much is lost when `process` falls.
    pub fn blast(&self, process: usize) -> Blast {
        self.blast_of(&self.losses(process))
    }

    /// How much that is.
    pub fn blast_of(&self, losses: &[Reach]) -> Blast {
        let count = |loss| losses.iter().filter(|reach| reach.loss == loss).count();
        Blast { whole: count(Loss::Whole), part: count(Loss::Part), total: self.assets.len() }
    }

    /// The first process with which the same is lost: that of its circle, where it is in one.
    pub fn alike(&self, process: usize) -> usize {
        let circle = self.processes[process].circle.map(|circle| &self.circles[circle]);
        circle.and_then(|circle| circle.members.first()).copied().unwrap_or(process)
    }

    /// How much is lost with each process.
    pub fn blasts(&self) -> Vec<Blast> {
        let mut known = HashMap::new();
        let mut blast =
            |number| *known.entry(self.alike(number)).or_insert_with_key(|&number| self.blast(number));
        (0..self.processes.len()).map(&mut blast).collect()
    }

    /// What one process costs, those left out that are trusted with everything.
    pub fn summary(&self) -> Summary<'_> {
        let blasts: Vec<(&ExplainedProcess, Blast)> =
            self.processes.iter().zip(self.blasts()).filter(|(process, _)| !process.is_root).collect();
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
        Asset { kind: AssetKind::Files, name: name.into(), label: name.into(), site: None }
    }

    fn process(name: &str, reaches: &[(usize, Loss)], drags: &[usize]) -> ExplainedProcess {
        let reach = |&(asset, loss): &(usize, Loss)| Reach { asset, loss, how: format!("{name} can").into() };
        let drag = |&process: &usize| Drag { process, how: format!("{name} drags").into() };
        ExplainedProcess {
            name: name.into(),
            is_root: name == "root",
            reaches: reaches.iter().map(reach).collect(),
            common: None,
            drags: drags.iter().map(drag).collect(),
            circle: None,
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
        Model { assets: ["x", "y", "z"].map(asset).into_iter().collect(), processes, circles: Vec::new() }
    }

    #[test]
    fn dependence_is_transitive_and_ends() {
        let falls = model().falls(0);
        assert_eq!(falls.iter().map(|drag| drag.process).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(&*falls[1].how, "a drags");
        assert_eq!(&*falls[2].how, "by b: b drags");
        assert_eq!(model().falls(2).len(), 1);
    }

    #[test]
    fn the_greatest_loss_counts_and_says_by_whom() {
        let losses = model().losses(0);
        assert_eq!((losses[0].loss, &*losses[0].how), (Loss::Whole, "by b: b can"));
        assert_eq!(&*losses[1].how, "by b: b can");
        assert_eq!(losses.iter().map(|reach| reach.asset).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(model().losses(2).iter().map(|reach| reach.asset).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_circle_falls_as_one_and_the_shortest_way_is_named() {
        let mut model = model();
        model.circles = vec![Circle { members: vec![0, 2], how: "alike".into() }];
        for member in [0, 2] {
            model.processes[member].circle = Some(0);
            model.processes[member].common =
                Some(Rc::from([Reach { asset: 2, loss: Loss::Part, how: "all do".into() }]));
        }
        let falls = model.falls(0);
        assert_eq!(
            falls.iter().map(|drag| (drag.process, &*drag.how)).collect::<Vec<_>>()[1..],
            [(1, "a drags"), (2, "alike")]
        );
        assert_eq!(&*model.falls(2)[1].how, "alike");
        assert_eq!((model.alike(2), model.alike(1)), (0, 1));
        assert_eq!(model.blasts(), [0, 1, 2, 3].map(|number| model.blast(number)));
        assert_eq!(
            (model.blast(2), &*model.losses(2)[2].how),
            (Blast { whole: 1, part: 2, total: 3 }, "all do")
        );
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
        let nothing = Model { assets: Assets::default(), processes: Vec::new(), circles: Vec::new() };
        assert_eq!(nothing.summary().worst, None);
    }
}
